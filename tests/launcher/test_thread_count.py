"""Results are the same bits for every number of threads, and from run to run; each count in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

#: Programs with work for several threads: maps, transposes, reductions over each side, products, windows, updates.
WORKER = """
import hashlib, sys
import numpy as np
from shardc.compiler.compile import compile_module
from shardc.stages.stages import Compiled
from shardc.hlo.config import Config
from shardc.hlo.text.reader import read_hlo
from shardc.native.threads.pool import pool, pool_object

SUM = '''
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
max {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b)
}
'''
X = "x = f32[701,1031] parameter(0)\\n zero = f32[] constant(0)\\n low = f32[] constant(-inf)\\n"
PROGRAMS = {
    "map": "e = f32[701,1031] exponential(x)\\n ROOT y = f32[701,1031] multiply(e, x)",
    "transpose": "t = f32[1031,701] transpose(x), dimensions={1,0}\\n ROOT y = f32[1031,701] negate(t)",
    "rows": "ROOT y = f32[701] reduce(x, zero), dimensions={1}, to_apply=sum",
    "columns": "ROOT y = f32[1031] reduce(x, zero), dimensions={0}, to_apply=sum",
    "all": "ROOT y = f32[] reduce(x, zero), dimensions={0,1}, to_apply=sum",
    "softmax": '''m = f32[701] reduce(x, low), dimensions={1}, to_apply=max
      b = f32[701,1031] broadcast(m), dimensions={0}
      d = f32[701,1031] subtract(x, b)
      e = f32[701,1031] exponential(d)
      s = f32[701] reduce(e, zero), dimensions={1}, to_apply=sum
      c = f32[701,1031] broadcast(s), dimensions={0}
      ROOT y = f32[701,1031] divide(e, c)''',
    "product": "ROOT y = f32[701,701] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "bias": '''p = f32[701,701] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}
      r = f32[701] reduce(x, zero), dimensions={1}, to_apply=sum
      b = f32[701,701] broadcast(r), dimensions={1}
      a = f32[701,701] add(p, b)
      ROOT y = f32[701,701] tanh(a)''',
    "convolution": '''i = f32[1,701,1031,1] reshape(x)
      k0 = f32[1,9,1,1] slice(i), slice={[0:1],[0:9],[0:1],[0:1]}
      k1 = f32[9] reshape(k0)
      k2 = f32[9,8] broadcast(k1), dimensions={0}
      k = f32[3,3,1,8] reshape(k2)
      ROOT y = f32[1,701,1031,8] convolution(i, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f''',
    "pool": "ROOT y = f32[350,515] reduce-window(x, low), window={size=2x3 stride=2x2}, to_apply=max",
    "running": "ROOT y = f32[701,1031] reduce-window(x, zero), window={size=701x1 pad=700_0x0_0}, to_apply=sum",
    "sort": "ROOT y = f32[701,1031] sort(x), dimensions={1}, to_apply=less",
}
LESS = '''
less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}
'''
x = np.random.default_rng(0).standard_normal((701, 1031)).astype(np.float32)
config = Config.from_environment()
for name, lines in PROGRAMS.items():
    text = f"HloModule {name}\\n{SUM}{LESS}\\nENTRY main {{\\n{X} {lines}\\n}}\\n"
    compiled = Compiled(compile_module(read_hlo(text), config), config=config)
    digests = {hashlib.sha256(np.asarray(compiled(x)).tobytes()).hexdigest()[:16] for _ in range(3)}
    print(name, *digests)
print("workers", pool(pool_object()).started(), file=sys.stderr)
"""


def test_any_number_of_threads_gives_the_same_bits(tmp_path: Path) -> None:
    def run(threads: int) -> tuple[str, str]:
        environment = {**os.environ, "SHARDC_NUM_THREADS": str(threads), "SHARDC_CACHE_DIR": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", WORKER], capture_output=True, text=True, check=False, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr.strip().splitlines()[-1]

    serial, helpers = run(1)
    assert helpers == "workers 0"
    assert all(len(line.split()) == 2 for line in serial.splitlines()), serial
    for threads in (2, 3, 8):
        found, helpers = run(threads)
        assert found == serial
        assert helpers == f"workers {threads - 1}"
