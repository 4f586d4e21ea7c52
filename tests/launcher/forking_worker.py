"""One rank that starts processes which use shardc: ``forking_worker.py HOW``."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys

import numpy as np

import shardc


def whole_sum(factor: int) -> float:
    """What a process computes on as many devices as it finds."""
    x = shardc.array(np.full(8, factor, np.float32), (shardc.Mesh({"d": 2}), shardc.P("d")))
    return float((x * x).sum()) + shardc.process_count()


def main(how: str) -> None:
    x = np.ones(8, np.float32)
    double = shardc.jit(lambda x: x + x, mesh=shardc.Mesh({"d": 2}), in_shardings=shardc.P("d"))
    if how == "compiled":
        double(x)
    if how != "before":
        print(whole_sum(1), flush=True)
    if how == "spawn":
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            print(pool.map(whole_sum, [2, 3]), flush=True)
    elif how == "subprocess":
        code = "from tests.launcher.forking_worker import whole_sum; print(whole_sum(2))"
        subprocess.run([sys.executable, "-c", code], check=True)
    elif how == "before":
        code = "from tests.launcher.forking_worker import whole_sum; whole_sum(2)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        print(done.returncode, done.stderr.splitlines()[0], flush=True)
    elif how == "fork":
        with multiprocessing.get_context("fork").Pool(2) as pool:
            try:
                pool.map(whole_sum, [2, 3])
            except shardc.ShardcError as e:
                print(e.what, flush=True)
    elif how == "compiled" and os.fork() == 0:
        try:
            double(x)
        except shardc.ShardcError as e:
            print(e.what, flush=True)
        sys.exit(3)
    elif how == "exit" and os.fork() == 0:
        sys.exit(3)
    elif how in ("compiled", "exit"):
        print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
    print(whole_sum(1), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
