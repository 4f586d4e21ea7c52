"""A rank of a job that compiles with what the environment says; ``lonely``: the last one reaches no service.

Prints, by rank, from where its executable came and its digest; rank 0 prints the sum of the result.
"""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import replace

import numpy as np

import shardc
from shardc import Mesh, P, ShapeDtype
from shardc.compiler.cache.serialize import to_bytes
from shardc.hlo.config import Config
from shardc.launcher.jobs.mpi_environment import detect_launcher

launcher = detect_launcher()
assert launcher is not None
if "lonely" in sys.argv and launcher.rank == launcher.size - 1:
    os.environ["SHARDC_SERVER"] = "http://127.0.0.1:9"
if "unset" in sys.argv and launcher.rank == launcher.size - 1:
    del os.environ["SHARDC_SERVER"]
mesh = Mesh({"data": 4})
program = shardc.trace(
    lambda w, x: np.tanh(x @ w),
    ShapeDtype((16, 8), "float32"),
    ShapeDtype((8, 16), "float32"),
    mesh=mesh,
    in_shardings=(None, P("data")),
)
compiled = program.compile()
result = shardc.gather(compiled(np.ones((16, 8), np.float32), np.ones((8, 16), np.float32)))
made = compiled.share()
came = "service" if "service" in compiled.seconds else "compile" if "compile" in compiled.seconds else "rank 0"
digest = hashlib.sha256(to_bytes(replace(made, seconds={}))).hexdigest()[:8]
assert Config.from_environment().cache_dir.name == "cache"
print(f"rank {shardc.process_index()} {came} {digest}", flush=True)
if shardc.process_index() == 0:
    print(f"sum {float(np.sum(np.asarray(result))):.4f}", flush=True)
