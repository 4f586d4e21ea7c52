"""One rank of a job over the hand-written program: ``job_worker.py DEVICES [what goes wrong]``."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace

import ml_dtypes
import numpy as np

import shardc
from shardc.hlo.config import Config
from shardc.launcher.arrays.array import Array
from shardc.launcher.driver.driver import Driver
from shardc.launcher.jobs.job import job_transport
from tests.launcher.fake_program import program

X = np.arange(10, dtype=np.float32)
W = np.array([1, 2, 3], np.float32)


def main(devices: int, trouble: str) -> None:
    config = Config.from_environment()
    transport = job_transport(config)
    executable, step = program(devices)
    rank = shardc.process_index()
    if trouble == "other-program" and rank == 1:
        executable = replace(executable, name="other")
    driver = Driver(executable, step, transport, config, array_type=Array)
    y, v = driver([X, W])
    assert np.array_equal(shardc.gather({"y": y})["y"], X * 45)
    assert np.array_equal(np.asarray(v), W + 45)
    if trouble == "raise" and rank == 2:
        raise ValueError("boom")
    if trouble == "exit" and rank == 1:
        sys.exit(3)
    if trouble == "kill" and rank == 3:
        os._exit(1)
    if trouble == "stop" and rank == 1:
        time.sleep(600)
    if trouble == "other-values":
        driver([X + rank, W])
    if trouble == "other-copies":
        mesh = shardc.Mesh({"rows": 2, "copies": 2})
        x = shardc.array(np.full((4, 2), rank // 3, ml_dtypes.bfloat16), (mesh, shardc.P("rows")))
        shardc.jit(lambda x: x * 2, mesh=mesh, in_shardings=shardc.P("rows"))(x)
    if trouble == "part":
        np.asarray(y)
    if trouble == "all-fail":
        driver([X, X])
    if trouble:
        driver([X, W])
    if rank == 0:
        print(f"done on {shardc.process_count()} ranks", float(v[0]))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
