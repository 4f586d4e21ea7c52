"""Sections of virtual devices' arenas: one memory for the members of a group, another for other groups."""

from __future__ import annotations

import os

import numpy as np
import pytest
from numpy.typing import NDArray

from shardc.collectives.call.call import BufferRef, CollectiveCall, CollectiveOperand, SharedSection
from shardc.collectives.call.memory import aligned_bytes
from shardc.collectives.in_process.sections import VirtualSections
from shardc.collectives.in_process.transport import LocalTransport
from shardc.hlo.ir.groups import ListGroups
from shardc.hlo.ir.types import DTYPES
from shardc.native.memory.pages import can_share
from shardc.native.threads.pool import Row
from tests.collectives.oracle import DeviceMemory, perform, tree

needs_files = pytest.mark.skipif(not can_share(), reason="files in memory without a name are Linux's")

GROUPS = ListGroups(((0, 2), (1, 3)))
SECTION = SharedSection(8192, 70_000, GROUPS)
ARENA = 8192 + 70_000


def arenas() -> list[NDArray[np.uint8]]:
    return [LocalTransport().empty(ARENA) for _ in range(4)]


def rows_of(blocks: list[NDArray[np.uint8]]) -> list[Row]:
    return [Row(b.ctypes.data, 0, 0, 0, d, 0) for d, b in enumerate(blocks)]


@needs_files
def test_members_of_a_group_see_the_same() -> None:
    blocks = arenas()
    for d, b in enumerate(blocks):
        b[:] = d
    rows = rows_of(blocks)
    sections = VirtualSections(rows, [SECTION], 4)
    assert [b[SECTION.offset + 100] for b in blocks] == [0, 1, 0, 1]
    blocks[2][SECTION.offset + 7] = 9
    blocks[3][4000] = 8
    assert [b[SECTION.offset + 7] for b in blocks] == [9, 1, 9, 1]
    assert [b[4000] for b in blocks] == [0, 1, 2, 8]
    inside, outside = BufferRef("arena", 0, SECTION.offset + 64, 64), BufferRef("arena", 0, 64, 64)
    places = np.array([r.arena for r in rows])
    assert sections.followers(places, inside).tolist() == [False, False, True, True]
    assert not any(sections.followers(places, r).any() for r in (outside, BufferRef("result", 0, 8192, 64)))


def test_memory_that_is_no_pages_stays_private() -> None:
    blocks = [aligned_bytes(ARENA + 8192) for _ in range(4)]
    starts = [-b.ctypes.data % 4096 + 64 for b in blocks]
    rows = rows_of([b[s:] for b, s in zip(blocks, starts, strict=True)])
    sections = VirtualSections(rows, [SECTION], 4)
    assert not sections.followers(np.array([r.arena for r in rows]), BufferRef("arena", 0, 8192, 64)).any()


@pytest.mark.parametrize("op", ["all-reduce", "all-gather"])
def test_collectives_into_sections(op: str) -> None:
    f32, n = DTYPES["f32"], 1900
    count = n * 2 if op == "all-gather" else n
    operand, result = BufferRef("arena", 0, 64, 4 * n), BufferRef("arena", 0, SECTION.offset + 64, 4 * count)
    call = CollectiveCall(
        0, op, "add" if op == "all-reduce" else "", GROUPS, (CollectiveOperand(operand, result, f32, n),)
    )
    memories = {d: DeviceMemory(b, (), (), aligned_bytes(0)) for d, b in enumerate(arenas())}
    rng = np.random.default_rng(0)
    values = rng.standard_normal((4, n)).astype(np.float32)
    for d, m in memories.items():
        m.view(operand, f32)[:] = values[d]
    perform(LocalTransport(), [call], 4, memories, sections=[SECTION])
    for d, m in memories.items():
        members = [values[d % 2], values[d % 2 + 2]]
        want = tree("add", f32, members) if op == "all-reduce" else np.concatenate(members)
        assert m.view(result, f32).tobytes() == want.tobytes()


@needs_files
@pytest.mark.filterwarnings("ignore:os.fork")  # of JAX, where a test before this one has loaded it
def test_a_child_after_fork_has_its_own() -> None:
    blocks = arenas()
    blocks[0][SECTION.offset] = 3
    sections = VirtualSections(rows_of(blocks), [SECTION], 4)
    child = os.fork()
    if child == 0:
        known = blocks[2][SECTION.offset] == 3
        blocks[0][SECTION.offset] = 5
        os._exit(0 if known and blocks[2][SECTION.offset] == 5 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert blocks[2][SECTION.offset] == 3
    second = np.array([blocks[2].ctypes.data])
    assert sections.followers(second, BufferRef("arena", 0, SECTION.offset, 4)).all()
