"""One rank of a job on emulated GPUs: ``gpu_job_worker.py DEVICES OUT [what goes wrong]``.

Every rank has a GPU with some of the devices; rank 0 writes what the GPUs and the CPUs computed.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import numpy as np

import shardc
from shardc import Mesh, P, ShapeDtype
from shardc.launcher.gpu.driver import GpuDriver


def step(w: Any, x: Any) -> Any:
    """Sharded by rows and columns: all kinds of collectives."""
    y = np.tanh(x @ w)
    shifted = np.roll(y, 3, axis=0)
    return w - 0.01 * (x.T @ shifted), (y * shifted).sum(), y.max(axis=1), y.T


def main(devices: int, out: str, trouble: str) -> None:
    rng = np.random.default_rng(0)
    w, x = (rng.standard_normal(s).astype(np.float32) for s in ((12, 8), (24, 12)))
    mesh = Mesh({"a": 2, "b": devices // 2}) if devices % 2 == 0 else Mesh({"a": devices, "b": 1})
    specs = ShapeDtype(w.shape, "float32"), ShapeDtype(x.shape, "float32")
    program = shardc.trace(step, *specs, mesh=mesh, in_shardings=(P("a", "b"), P("a", None)), out_shardings=None)
    partitioned = program.partition()
    driver = partitioned.compile("cuda-emulated").driver
    assert isinstance(driver, GpuDriver)
    rank = shardc.process_index()
    for k in range(3):
        results = driver([w + k, x])
        if trouble == "raise" and rank == 1 and k == 1:
            raise ValueError("boom")
        if trouble == "stop" and rank == 1 and k == 1:
            time.sleep(600)
        if trouble == "kill" and rank == 1 and k == 1:
            os._exit(1)
    again = driver([results[0], x])  # from GPU to GPU
    on_gpu = [shardc.gather(r) for r in (*results, *again)]
    cpu = partitioned.compile("cpu").driver
    on_cpu = [shardc.gather(r) for r in (*cpu([w + 2, x]), *cpu([results[0], x]))]
    if rank == 0:
        np.savez(out, *on_gpu, *on_cpu, np.array([len(driver.executable.collectives), driver.collectives_done]))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "")
