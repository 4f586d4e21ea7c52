"""Calls of Python by native code while exceptions are on their way, and by several threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from pjrt_calls import Caller, PjrtProblem

from shardc.frontends.pjrt.abi.clients import ClientCreateArgs

_PROGRAM = Path(__file__).parent / "destructors_program.py"


def test_functions_get_and_fill_the_clients_structure() -> None:
    seen: list[int] = []

    def create(args: ClientCreateArgs) -> None:
        seen.append(args.num_options)
        args.client = 4711

    client = Caller({"Client_Create": create})
    assert client.call("Client_Create", num_options=3).client == 4711
    assert seen == [3]


def test_threads_without_the_gil_call_python() -> None:
    counts = [0] * 4

    def create(args: ClientCreateArgs) -> None:
        counts[args.num_options] += 1
        if counts[args.num_options] % 3 == 0:
            raise KeyError(args.num_options)

    client = Caller({"Client_Create": create})
    problems: list[Any] = []

    def work(number: int) -> None:
        for _ in range(300):
            try:
                client.call("Client_Create", num_options=number)
            except PjrtProblem as e:
                problems.append(str(e))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert counts == [300] * 4
    assert sorted(problems) == sorted(f"KeyError: {n}" for n in range(4) for _ in range(100))


def _destructors(rounds: int, how: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(_PROGRAM.parents[4]), str(_PROGRAM.parent)])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, str(_PROGRAM), str(rounds), how]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


def test_10000_destructors_under_a_pending_exception() -> None:
    done = _destructors(10_000, "kept")
    assert (done.stdout, done.returncode) == ("calls: 20000\n", 0), done.stderr


def test_a_call_that_does_not_keep_the_exception_is_noticed() -> None:
    done = _destructors(10, "plain")
    assert done.returncode != 0
    assert "SystemError" in done.stderr
