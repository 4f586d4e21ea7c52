"""Ctrl-C ends a run at once: alone, in a long native step, and in a job, of which nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launcher.test_faults import alive

LONG = """
import ctypes, threading, time
from shardc.launcher.jobs.interrupts import prompt_interrupts
from shardc.native.llvm.jit import compile_ir, load_object
text = ("define void @spin(ptr %inside) {\\nentry:\\n  store volatile i32 1, ptr %inside\\n  br label %loop\\n"
        "loop:\\n  br label %loop\\n}")
code = load_object(compile_ir(text), ["spin"])
inside = ctypes.c_int32(0)
def tell():
    while not inside.value:
        time.sleep(0.01)
    print("running", flush=True)
threading.Thread(target=tell, daemon=True).start()
with prompt_interrupts(0.1):
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address("spin"))(ctypes.addressof(inside))
"""
NOTICED = """
import time
from shardc.launcher.jobs.interrupts import prompt_interrupts
try:
    with prompt_interrupts(0.1):
        print("running", flush=True)
        time.sleep(600)
except KeyboardInterrupt:
    time.sleep(0.5)
    print("cleaned up", flush=True)
"""
LOOP = """
import sys
from tests.launcher.fault_program import argument, compiled
program = compiled()
while True:
    program.run([argument()])
    if sys.argv[-1] == "loop":
        import os
        os.write(1, b"running %d\\n" % os.getpid())  # a whole line at once, also where Python does not buffer
        sys.argv.append("")
"""


def interrupted(line: list[str], ranks: int, cwd: Path) -> tuple[int, str, list[int]]:
    """Exit code, output and processes of a program that gets Ctrl-C once all its ranks run."""
    with subprocess.Popen(
        line, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        said: list[str] = []
        while sum(text.startswith("running") for text in said) < ranks:
            said.append(process.stdout.readline())
            assert said[-1], "".join(said)
        os.killpg(process.pid, signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    pids = [int(text.split()[1]) for text in said if text.startswith("running ")]
    return process.returncode, rest, pids


def test_a_program_in_native_code(repository: Path) -> None:
    code, said, _ = interrupted([sys.executable, "-c", LONG], 1, repository)
    assert (code, said) == (130, "interrupted\n")


def test_a_program_that_cleans_up_has_its_time(repository: Path) -> None:
    assert interrupted([sys.executable, "-c", NOTICED], 1, repository)[:2] == (0, "cleaned up\n")


@pytest.mark.mpi
def test_a_job(repository: Path) -> None:
    line = [sys.executable, "-m", "shardc", "mpiexec", "-n", "4", sys.executable, "-c", LOOP, "loop"]
    code, _, pids = interrupted(line, 4, repository)
    assert code == 130
    assert len(pids) == 4
    assert not [pid for pid in pids if alive(pid)]
