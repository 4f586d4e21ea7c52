"""NCCL as it is called: functions, arguments, what its answers mean."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from shardc.native.gpu.cuda.nccl import _FUNCTIONS, Communicator, find_nccl, nccl_version, new_unique_id, together
from shardc.native.gpu.emulated.runtime import EmulatedRuntime
from shardc.native.gpu.problems import GpuFault, GpuProblem
from tests.native.gpu.stand_in import stand_in


class FakeNccl:
    """Remembers calls. ``statuses[name]`` is answered once."""

    def __init__(self, version: int = 22703) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.statuses: dict[str, int] = {}
        self.failed = 0
        answers = {name: self._answer(name) for name in _FUNCTIONS}
        answers["ncclGetVersion"] = lambda place: self._put(place, version)
        answers["ncclCommGetAsyncError"] = lambda _, place: self._put(place, self.failed)
        answers["ncclGetUniqueId"] = self._unique
        answers["ncclCommInitRank"] = self._begin
        words = {"ncclGetErrorString": lambda s: b"status %d" % s, "ncclGetLastError": lambda _: b"a rank is gone"}
        self.library = stand_in(_FUNCTIONS, answers, **words)

    def _answer(self, name: str) -> Any:
        def answer(*arguments: Any) -> int:
            self.calls.append((name, *arguments))
            return self.statuses.pop(name, 0)

        return answer

    @staticmethod
    def _put(place: Any, value: int) -> int:
        place[0] = value
        return 0

    @staticmethod
    def _unique(place: Any) -> int:
        ctypes.memmove(ctypes.addressof(place[0]), bytes(range(128)), 128)
        return 0

    def _begin(self, place: Any, size: int, unique: Any, rank: int) -> int:
        self.calls.append(("ncclCommInitRank", size, bytes(memoryview(unique)), rank))
        place[0] = 0xC033
        return self.statuses.pop("ncclCommInitRank", 0)


def test_what_nccl_is_told() -> None:
    fake, runtime = FakeNccl(), EmulatedRuntime()
    stream = runtime.stream()
    unique = new_unique_id(fake.library)
    assert unique == bytes(range(128))  # zeros in it do not end it
    communicator = Communicator(runtime, unique, 4, 3, fake.library)
    communicator.all_reduce(0x100, 0x200, 10, "bf16", "add", stream)
    communicator.reduce_scatter(0x300, 0x400, 5, "s64", "multiply", stream)
    communicator.all_gather(0x500, 0x600, 77, stream)
    with together(communicator):
        communicator.send(0x700, 8, 1, stream)
        communicator.receive(0x800, 9, 2, stream)
    communicator.check()
    communicator.close()
    communicator.close()
    at, queue = 0xC033, stream.handle
    assert fake.calls == [
        ("ncclCommInitRank", 4, unique, 3),
        ("ncclAllReduce", 0x100, 0x200, 10, 9, 0, at, queue),
        ("ncclReduceScatter", 0x300, 0x400, 5, 4, 1, at, queue),
        ("ncclAllGather", 0x500, 0x600, 77, 1, at, queue),
        ("ncclGroupStart",),
        ("ncclSend", 0x700, 8, 1, 1, at, queue),
        ("ncclRecv", 0x800, 9, 1, 2, at, queue),
        ("ncclGroupEnd",),
        ("ncclCommDestroy", at),
    ]


def test_what_its_answers_mean() -> None:
    fake, runtime = FakeNccl(), EmulatedRuntime()
    fake.statuses["ncclCommInitRank"] = 3
    with pytest.raises(GpuFault, match="NCCL: ncclCommInitRank failed: status 3; a rank is gone"):
        Communicator(runtime, bytes(128), 2, 0, fake.library)
    communicator = Communicator(runtime, bytes(128), 2, 0, fake.library)
    fake.statuses["ncclAllGather"] = 7  # in progress
    communicator.all_gather(256, 512, 4, runtime.stream())
    fake.failed = 6
    with pytest.raises(GpuFault, match="a collective failed: status 6"):
        communicator.check()
    communicator.abort()
    assert fake.calls[-1] == ("ncclCommAbort", 0xC033)
    with pytest.raises(GpuFault, match="after the communicator was closed"):
        communicator.send(256, 4, 1, runtime.stream())


def test_a_group_ends_when_its_middle_fails() -> None:
    fake, runtime = FakeNccl(), EmulatedRuntime()
    communicator = Communicator(runtime, bytes(128), 2, 0, fake.library)
    fake.statuses["ncclSend"] = 5
    with pytest.raises(GpuFault, match="ncclSend failed"), together(communicator):
        communicator.send(256, 4, 1, runtime.stream())
    assert fake.calls[-1] == ("ncclGroupEnd",)


def test_versions() -> None:
    with pytest.raises(GpuProblem, match="NCCL 20604 is too old"):
        new_unique_id(FakeNccl(20604).library)
    with pytest.raises(ValueError, match="128 bytes, not 5"):
        Communicator(EmulatedRuntime(), b"short", 1, 0, FakeNccl().library)


def test_the_real_library() -> None:
    if find_nccl() is None:
        pytest.skip("NCCL is not installed")
    assert nccl_version() >= 20700
    assert len(new_unique_id()) == 128
