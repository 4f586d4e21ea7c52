"""One rank of a job in which rank R has an accident at its N-th collective: ``fault_worker.py FAULT N R FOLDER``.

The accident is put between the loop over collectives and the collective executor, in the second step. Every rank leaves
its process number and its memory's map in FOLDER; rank 0 writes ``out`` there, and is in the middle of it when the
accident happens.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import shardc
from shardc.launcher.run.output_files import atomic_output
from shardc.native.drive.drive_loop import PERFORM_TYPE
from shardc.native.lowlevel.records import RELAXED
from tests.launcher.fault_program import argument, compiled


def accident(fault: str, loop: Any) -> int:
    """What the collective executor answers, if it gets so far."""
    match fault:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "exit":
            os._exit(0)
        case "sleep":
            time.sleep(600)
        case "freeze":
            ctypes.PyDLL(None).pause()  # native code that keeps Python's lock
        case "raise":
            return -77
        case "skip":
            loop.job.made.add(-1, RELAXED)  # this process never came to it
    return 0


def inject(driver: Any, fault: str, at: int) -> object:
    """Let the collective ``at`` of the steps from now on have an accident; returns what must stay alive."""
    job = driver._loop.job
    perform = job.perform
    failure = driver._executor.failure
    begun, to_come = job.made.load(RELAXED), [fault]

    def shim(state: int, index: int, phase: int, deadline: int) -> int:
        if to_come and job.made.load(RELAXED) - 1 == begun + at:
            return accident(to_come.pop(), driver._loop)
        return int(perform(state, index, phase, deadline))

    native = PERFORM_TYPE(shim)
    job.perform = ctypes.cast(native, ctypes.c_void_p).value
    driver._executor.failure = lambda code, index: ValueError("boom") if code == -77 else failure(code, index)
    return native, perform


def main(fault: str, at: int, victim: int, folder: Path) -> None:
    program = compiled()
    x = argument()
    program.run([x])
    rank = shardc.process_index()
    (folder / f"rank{rank}.pid").write_text(str(os.getpid()))
    (folder / f"rank{rank}.maps").write_text(Path("/proc/self/maps").read_text())
    # No rank comes out of this step before all have written: the accident ends ranks that are late.
    (first,) = program.run([x])
    expected = shardc.gather(first)
    keep = inject(program.driver, fault, at) if rank == victim and fault != "none" else None
    if rank == 0:
        with atomic_output(folder / "out") as file:
            file.write(b"half")
            last = steps(program, x)
            file.write(np.asarray(last).tobytes())
    else:
        last = steps(program, x)
    assert np.array_equal(last, expected)
    del keep


def steps(program: Any, x: np.ndarray) -> np.ndarray:
    """Two more steps; their results."""
    for _ in range(2):
        (y,) = program.run([x])
    return np.asarray(shardc.gather(y))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
