"""Runs cases of JAX's tests in child processes: one that aborts or hangs is named, and the next gets a new child."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from conformance_data import conformance_folder
from plugin_environment import plugin_environment

__all__ = ["Children", "Outcome", "suite_folder"]

CHILD = Path(__file__).with_name("child.py")

#: Seconds for importing a file, and for a case; on a machine that does other things beside.
LOADING, LIMIT = 180.0, 150.0
#: After so many cases a child is replaced: JAX keeps all that it compiled.
CASES_PER_CHILD = 150
#: Devices that a file wants without asking for them.
DEVICES = {"aot_test": 8}
#: How many of the cases that are drawn run, and that those of more than some seconds do not.
ENVIRONMENT = {
    "JAX_NUM_GENERATED_CASES": "1",
    "JAX_SKIP_SLOW_TESTS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def suite_folder() -> Path:
    return conformance_folder() / "jax" / "tests"


@dataclass(frozen=True)
class Outcome:
    """``kind`` is passed, failed, skipped, aborted or hung; ``why`` the traceback, the reason or the last words."""

    kind: str
    why: str = ""
    seconds: float = 0.0


class Children:
    """One child at a time, for the file of the case that was asked for last."""

    def __init__(self, platform: str, folder: Path | None = None) -> None:
        self.platform = platform
        self.folder = folder or suite_folder()
        self._stack = contextlib.ExitStack()
        self._metadata = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="shardc-jax-suite-")))
        self._process: subprocess.Popen[str] | None = None
        self._log: Any = None
        self._file = ""
        self._asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        self._end()
        self._stack.close()

    def names(self, file: str) -> list[str]:
        """The cases of a file, in its order."""
        return list(self._start(file))

    def run(self, file: str, case: str) -> Outcome:
        if self._process is None or file != self._file or self._asked >= CASES_PER_CHILD:
            self._start(file)
        process = self._process
        assert process is not None and process.stdin is not None
        self._asked += 1
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(case + "\n")
            process.stdin.flush()
        answer = self._read(LIMIT)
        if isinstance(answer, Outcome):
            return answer
        return Outcome(answer["outcome"], answer["why"], answer["seconds"])

    def _start(self, file: str) -> list[str]:
        self._end()
        self._log = self._stack.enter_context(_log_file())
        self._process = subprocess.Popen(
            [sys.executable, str(CHILD), str(self.folder / f"{file}.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, cwd=self._metadata,
            env=self._environment(file), start_new_session=True,
        )  # fmt: skip
        self._file, self._asked = file, 0
        names = self._read(LOADING)
        if isinstance(names, Outcome):
            raise RuntimeError(f"{file} cannot be loaded on {self.platform}: {names.kind}\n{names.why}")
        return list(names)

    def _read(self, limit: float) -> Any:
        """The child's next line; an Outcome where it ended or the time was over, and then it is gone."""
        process = self._process
        assert process is not None and process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            ready = selector.select(limit)
        line = process.stdout.readline() if ready else ""
        if line.endswith("\n"):
            return json.loads(line)
        if ready:
            code = process.wait()
            name = signal.Signals(-code).name if code < 0 else f"code {code}"
            return Outcome("aborted", f"the process ended with {name}\n{self._last_words()}")
        process.send_signal(signal.SIGABRT)  # its fault handler writes where every thread is
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        return Outcome("hung", f"no answer in {limit:g} s\n{self._last_words()}", limit)

    def _last_words(self) -> str:
        self._log.flush()
        self._log.seek(0)
        words = self._log.read()[-6000:]
        self._end()
        return str(words)

    def _end(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    if stream is not None:
                        stream.close()
            self._process = None
            self._log.close()

    def _environment(self, file: str) -> dict[str, str]:
        return plugin_environment(self.platform, self._metadata, DEVICES.get(file), **ENVIRONMENT)


def _log_file() -> Any:
    return tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
