"""The native executor of messages on an MPI library of Python callbacks: what it asks for, what failures mean."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shardc.collectives.call.membership import Ownership, check_call
from shardc.collectives.call.stamp import Told
from shardc.collectives.engine.engine_calls import work_code
from shardc.collectives.engine.plan_messages import MessageLimits, Topology, plan_messages
from shardc.collectives.mpi.functions import MpiFunctions
from shardc.collectives.mpi.message_executor import MessageChannel, MessageExecutor, PlannedCollective
from shardc.native.drive.drive_loop import DONE_PHASE, PERFORM_TYPE, START, WHOLE
from shardc.native.threads.pool import Row, pool, pool_object
from tests.collectives.oracle import make_case, memory_for

POST = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.c_int64,
    ctypes.c_int32,
    ctypes.c_int32,
    ctypes.c_int64,
    ctypes.c_void_p,
)
TESTALL = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32), ctypes.c_void_p
)
STATUS = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
BYTE, COMMUNICATOR = 0x7FFF_1234_5678, -1234


class Library:
    """Rank 0 of 2; ``codes`` by function, ``done``: are messages ever?"""

    def __init__(self, done: bool = True, **codes: int) -> None:
        self.posted: list[tuple[str, int, int, int, int, int]] = []
        self.bytes: list[bytes] = []
        self.places: list[int] = []
        self.done = done
        self.codes = codes
        functions = [POST(self._posting("isend")), POST(self._posting("irecv")), TESTALL(self._testall)]
        self.keep = [*functions, STATUS(self._status)]
        addresses = [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in functions]
        mpi = SimpleNamespace(
            COMM_WORLD=SimpleNamespace(Get_rank=lambda: 0),
            Get_error_string=lambda code: f"error class {code}",
            Query_thread=lambda: 3,
            THREAD_MULTIPLE=3,
        )
        self.functions = MpiFunctions(mpi, *addresses, self._status, BYTE, 8, 24)

    def _posting(self, name: str) -> Any:
        def post(place: int, count: int, kind: int, peer: int, tag: int, communicator: int, request: int) -> int:
            self.posted.append((name, count, kind, peer, tag, communicator))
            self.bytes.append(ctypes.string_at(place, count) if name == "isend" else b"")
            if name == "irecv":
                self.places.append(place)
                if self.done:
                    self._echo(place)
            return self.codes.get(name, 0)

        return post

    def _echo(self, place: int) -> None:
        """The other rank says that it is in the same collective."""
        header = (ctypes.c_int64 * 7).from_address(place)
        header[:] = list(self.header)

    def _testall(self, count: int, requests: int, flag: Any, statuses: int) -> int:
        flag[0] = int(self.done)
        return self.codes.get("testall", 0)

    def _status(self, request: int, flag: int, status: int) -> int:
        ctypes.c_int32.from_address(flag).value = 0
        return 0

    header: tuple[int, ...] = (0,) * 7


def executor(library: Library, n: int = 5, timeout: float = 60, helper: bool = False, **limits: int) -> MessageExecutor:
    case = make_case(1, "all-reduce", 7, ("f32",), n)
    case.call = replace(case.call, asynchronous=helper)
    members = check_call(case.call, 4)
    topology = Topology(tuple(Ownership(4, 2).table().tolist()), (0, 1))
    plan = plan_messages(case.call, members, topology, 0, MessageLimits(**limits))
    memories = [memory_for(case, d) for d in (0, 1)]
    table = (ctypes.c_void_p * 1)()
    tables = (ctypes.addressof(table),) * 2
    rows = (Row * 2)(
        *(Row(m.arena.ctypes.data, *tables, m.constants.ctypes.data, d, 0) for d, m in enumerate(memories))
    )
    planned = [PlannedCollective(case.call, plan, MessageChannel(None, COMMUNICATOR, (0, 1)))]
    made = MessageExecutor(
        planned,
        rows,
        pool(pool_object()),
        library.functions,
        work_code(),
        timeout=timeout,
        spin=0,
        hosts=("a", "b"),
        helper=helper,
    )
    library.header = (1, 0, made._calls[0].signature, 0, 0, 0, 0)
    library.keep += [memories, table]
    return made


def ask(made: MessageExecutor, phase: int = WHOLE, deadline: int = 0) -> int:
    return int(PERFORM_TYPE(made.function)(made.state, 0, phase, deadline))


def test_what_mpi_is_asked_for() -> None:
    library = Library()
    assert ask(executor(library)) == 0
    (receive, send) = library.posted
    assert receive[0] == "irecv" and receive[2:] == (BYTE, 1, 4, COMMUNICATOR)
    # What comes is the sum of both operands of this process.
    assert send == ("isend", 64 + 32, BYTE, 1, 4, COMMUNICATOR)


def test_long_messages_are_cut() -> None:
    library = Library()
    assert ask(executor(library, 1000, message=1500, packed=0, whole=1 << 40)) == 0
    sent = [p for p in library.posted if p[0] == "isend"]
    assert [(count, tag) for _, count, _, _, tag, _ in sent] == [(64, 4), (1500, 5), (1500, 5), (1000, 5)]


def test_a_start_posts_and_a_done_waits() -> None:
    library = Library()
    made = executor(library)
    assert ask(made, START) == 0
    assert len(library.posted) == 2
    assert ask(made, START) < 0
    assert "starts before its previous run is complete" in str(made.failure(-3, 0))
    assert ask(made, DONE_PHASE) == 0
    assert ask(made, DONE_PHASE) == 0


@pytest.mark.parametrize("function", ["isend", "irecv", "testall"])
def test_errors_of_mpi(function: str) -> None:
    made = executor(Library(**{function: 15}))
    answer = ask(made)
    assert answer < 0
    text = str(made.failure(answer, 0))
    assert "MPI failed on rank 0 in all-reduce %all-reduce.1 (collective 0): error class 15" in text
    assert "t.py:1" in text


def test_another_collective() -> None:
    library = Library()
    made = executor(library)
    library.header = (1, 7, 3, 0, 0, 0, 0)
    answer = ask(made)
    assert answer < 0
    assert "rank 1 is in collective 7" in str(made.failure(answer, 0))


@pytest.mark.parametrize(
    ("stamp", "said"),
    [
        ((5, 3, 14, 36), None),
        (
            (6, 3, 14, 36),
            "rank 1 is in collective 0 of another program, step 3, but rank 0 is in all-reduce %all-reduce.1",
        ),
        ((5, 4, 14, 36), "rank 1 is in step 4 of train, but rank 0 is in step 3"),
        ((5, 3, 16, 40), "values: rank 1 has another value than rank 0 in step 3 of train\n  where: argument 1"),
        ((5, 3, 17, 44), "where: some of argument 0, argument 1, argument 2"),
    ],
)
def test_another_step(stamp: tuple[int, ...], said: str | None) -> None:
    library = Library()
    made = executor(library)
    made.program, made.told = 5, Told("train", [lambda k=k: f"argument {k}" for k in range(3)])  # type: ignore[misc]
    made.stamp(3, 14, 36)
    library.header = (*library.header[:3], *stamp)
    answer = ask(made)
    header = next(data for data in library.bytes if data)[:56]
    assert header == np.array([*library.header[:3], 5, 3, 14, 36]).tobytes()
    assert answer == 0 if said is None else answer < 0 and said in str(made.failure(answer, 0))


def test_a_message_that_never_comes() -> None:
    made = executor(Library(done=False), timeout=0.05)
    with pytest.raises(Exception, match="nothing arrived from rank 1 on b"):
        for _ in range(1000):
            assert ask(made, deadline=1_000_000) == 1
            made.tick()


@pytest.mark.parametrize("code", [0, 15])
def test_a_thread_does_what_was_started(code: int) -> None:
    library = Library(done=False)
    made = executor(library, 2000, helper=True)
    for _ in range(2):
        library.done, library.places = False, []
        before = len(library.posted)
        assert ask(made, START) == 0
        assert len(library.posted) == before + 2
        assert ask(made, DONE_PHASE, 1_000_000) == 1
        library.codes["testall"] = code
        for place in library.places:
            library._echo(place)
        library.done = True
        while (answer := ask(made, DONE_PHASE, 50_000_000)) == 1:
            pass
        if code:
            assert answer < 0
            assert "error class 15" in str(made.failure(answer, 0))
            break
        assert answer == 0
        library.header = (2, *library.header[1:])
    made.close()
