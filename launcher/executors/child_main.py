"""The main loop of a child: reads tasks from standard input, does one after the other, answers on standard output.

It ends with its input, also during a task, since its parent has then ended.
"""

from __future__ import annotations

import errno
import os
import queue
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from shardc.hlo.errors import RunError, ShardcError
from shardc.launcher.executors.confine import confine, resident_bytes
from shardc.launcher.executors.failures import disk_full_error, memory_error, size_error
from shardc.launcher.executors.frames import MessageFrame, read_frame, to_bytes
from shardc.launcher.executors.limits import TaskLimits
from shardc.launcher.executors.problems import to_problem
from shardc.launcher.executors.tasks import TASKS, find_task

__all__ = ["main"]

#: Characters of a part of an error, at most.
_LONGEST = 20_000


def main(folder: str, tasks: Mapping[str, str] = TASKS, prepare: Sequence[str] = ()) -> None:
    """Do ``tasks`` until standard input ends; does not return. ``folder`` is this process's own and goes with it when
    nobody else is left; the modules of the tasks ``prepare`` are imported right away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)  # a parent under nohup passes on what it ignores
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed must not get between answers
    requests: queue.SimpleQueue[MessageFrame] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, requests, folder), daemon=True).start()
    _Child(answers, tasks).serve(requests, prepare)


def _read(tasks: IO[bytes], requests: queue.SimpleQueue[MessageFrame], folder: str) -> None:
    while (frame := read_frame(tasks)) is not None:
        requests.put(frame)
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(ProcessLookupError):
        os.killpg(os.getpid(), signal.SIGKILL)  # also what a task has started
    os._exit(1)


class _Child:
    """Answers requests; whatever a task raises becomes plain data."""

    def __init__(self, answers: IO[bytes], tasks: Mapping[str, str]) -> None:
        self._answers, self._tasks, self._one_at_a_time = answers, tasks, threading.Lock()

    def serve(self, requests: queue.SimpleQueue[MessageFrame], prepare: Sequence[str]) -> None:
        for name in prepare:
            with suppress(Exception):  # who asks for the task hears of it
                find_task(name, self._tasks)
        while True:
            frame = requests.get()
            self._say({"said": "began"})
            header, body = self._answer(frame.header, frame.body)
            del frame
            self._say({**header, "resident": resident_bytes()}, body)
            del body

    def _answer(self, request: Mapping[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        name, limits = str(request["task"]), TaskLimits(**request["limits"])
        try:
            with confine(limits):
                answer = find_task(name, self._tasks)(payload, self._progress)
            if len(answer) > limits.answer_bytes:
                return _problem_answer(size_error(name, limits))
            return {"said": "answer"}, answer
        except ShardcError as e:
            return _problem_answer(e)
        except MemoryError:
            return _problem_answer(memory_error(name, limits), worn=True)
        except OSError as e:
            if e.errno in (errno.ENOSPC, errno.EDQUOT):
                return _problem_answer(disk_full_error(name, e))
            return _problem_answer(size_error(name, limits) if e.errno == errno.EFBIG else _internal_error(name, e))
        except RecursionError:
            what = f"the input of {name!r} is nested too deeply"
            return _problem_answer(RunError(what, fix="give a program with less nesting"))
        except Exception as e:
            return _problem_answer(_internal_error(name, e))

    def _progress(self, news: Mapping[str, Any]) -> None:
        self._say({"said": "progress", "news": dict(news)})

    def _say(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        with self._one_at_a_time:
            self._answers.writelines(to_bytes(header, body))
            self._answers.flush()


def _problem_answer(error: ShardcError, *, worn: bool = False) -> tuple[dict[str, Any], bytes]:
    """``worn``: the process should do no further task. An error may quote its input, which may be large."""
    problem = {k: v[:_LONGEST] if isinstance(v, str) else v for k, v in to_problem(error).items()}
    return {"said": "problem", "problem": problem, "worn": worn}, b""


def _internal_error(name: str, error: Exception) -> RunError:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(f"{type(error).__name__}: {error}".split())[:500]
    return RunError(
        f"{name!r} failed with an unexpected error: {text}",
        where=f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}",
        fix="this is a bug in shardc: please report it with the program",
    )
