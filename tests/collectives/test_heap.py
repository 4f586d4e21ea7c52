"""Memory that processes share: what is given out, what comes back, who may open it."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.collectives.shared_memory.heap import NodeHeaps, Ranges, SharedHeap, open_heaps

SHM = Path("/dev/shm")


def resident() -> int:
    """Bytes of shared memory that this process has touched."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssShmem"):
            return int(line.split()[1]) * 1024
    pytest.skip("this system does not say")


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=60), st.randoms(use_true_random=False))
def test_ranges_never_overlap_and_come_back(steps: list[tuple[int, bool]], random: Any) -> None:
    ranges = Ranges(1000)
    taken: dict[int, int] = {}
    for size, gives in steps:
        if gives and taken:
            start = random.choice(sorted(taken))
            begin, end = ranges.give(start, taken.pop(start))
            assert begin <= start < end
        start = ranges.take(size)
        if start is None:
            continue
        assert 0 <= start <= 1000 - size
        assert all(start + size <= s or s + n <= start for s, n in taken.items())
        taken[start] = size
    for start, size in taken.items():
        last = ranges.give(start, size)
    assert not taken or last == (0, 1000)


def test_blocks_are_aligned_apart_and_used_again() -> None:
    heap = SharedHeap(1 << 26)
    blocks = [heap.empty(n) for n in (0, 1, 63, 64, 65, 5000)]
    for k, block in enumerate(blocks):
        assert block.ctypes.data % 64 == 0
        assert heap.offset_of(block.ctypes.data, block.size) is not None
        block[:] = k
    assert [set(b.tolist()) for b in blocks] == [set(), {1}, {2}, {3}, {4}, {5}]
    place, view = blocks[5].ctypes.data, blocks[5][10:20].view(np.int16)
    del block
    blocks.clear()
    gc.collect()
    assert heap.empty(5000).ctypes.data != place, "a view keeps its block"
    del view
    gc.collect()
    again = [heap.empty(1000).ctypes.data for _ in range(2)]
    assert again[0] == again[1] < place
    assert heap.offset_of(np.zeros(3).ctypes.data) is None


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_loop_takes_no_more_memory_and_large_blocks_go_back() -> None:
    heap = SharedHeap(1 << 30)
    before = resident()
    for _ in range(20):
        heap.empty(32 << 20)[:] = 1
    assert resident() - before < 70 << 20
    held = [heap.empty(32 << 20) for _ in range(6)]
    for block in held:
        block[:] = 1
    del held, block
    gc.collect()
    heap.empty(1)
    assert resident() - before < 150 << 20


def test_no_memory_left_says_so() -> None:
    heap = SharedHeap(1 << 20)
    with pytest.raises(MemoryError, match="has no 2000000 bytes left"):
        heap.empty(2_000_000)


def test_memory_that_others_look_at_waits_for_them() -> None:
    heap = SharedHeap(1 << 20)
    start, ready = heap.take(1000), False
    heap.release(start, 1000, unused=lambda: ready)
    assert heap.take(1000) != start
    ready = True
    assert heap.take(64) == start
    assert heap.used == 1024 + 64


@pytest.mark.filterwarnings("ignore:os.fork")  # of JAX, where a test before this one has loaded it
def test_a_child_gets_memory_of_its_own() -> None:
    heap = SharedHeap(1 << 20)
    mine = heap.empty(1000)
    mine[:] = 7
    child = os.fork()
    if child == 0:
        block = heap.empty(1000)
        inside = heap.offset_of(block.ctypes.data) is not None
        os._exit(int(inside or mine[0] != 7))
    assert os.waitpid(child, 0)[1] == 0
    assert heap.used == 1024


def exchange_over(pipes: list[Connection | None]) -> Any:
    """Everybody's value, over a pipe to each of the others."""

    def exchange(value: Any) -> list[Any]:
        for pipe in pipes:
            if pipe is not None:
                pipe.send(value)
        return [value if pipe is None else pipe.recv() for pipe in pipes]

    return exchange


def other_process(pipe: Connection, named: bool | None) -> None:
    heaps = open_heaps(exchange_over([pipe, None]), 2, named=named)
    assert isinstance(heaps, NodeHeaps), heaps
    assert heaps.position == 1
    pipe.send("open")
    offset, value = pipe.recv()
    heaps.maps[0][offset : offset + 100] = value
    pipe.send("written")
    pipe.recv()


@pytest.mark.parametrize("named", [None, True])
def test_processes_read_and_write_each_other(named: bool | None) -> None:
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=other_process, args=(there, named))
    child.start()
    heaps = open_heaps(exchange_over([None, here]), 2, named=named)
    assert isinstance(heaps, NodeHeaps), heaps
    assert here.recv() == "open"
    block = heaps.mine.empty(1000)
    block[:] = 0
    here.send((heaps.mine.offset_of(block.ctypes.data), 9))
    assert here.recv() == "written"
    assert block.sum() == 900
    here.send("bye")
    child.join()
    assert child.exitcode == 0


def test_a_heap_that_cannot_be_reached_is_a_reason_for_all() -> None:
    def exchange(value: Any) -> list[Any]:
        if not isinstance(value, tuple):
            return [value, value]
        problem, offer = value
        from dataclasses import replace

        return [value, (problem, replace(offer, token=b"x" * 32))]

    answer = open_heaps(exchange, 2)
    assert isinstance(answer, str)
    assert "another container" in answer
    moved = open_heaps(lambda v: [v, ("no shared memory: none", v[1])] if isinstance(v, tuple) else [v, v], 2)
    assert moved == "no shared memory: none"


@pytest.mark.skipif(not SHM.exists(), reason="needs /dev/shm")
def test_a_killed_process_leaves_nothing(repository: Path) -> None:
    code = (
        "import sys, time\n"
        "from shardc.collectives.shared_memory.heap import open_heaps\n"
        "a = open_heaps(lambda v: [v], 1), open_heaps(lambda v: [v], 1, named=True)\n"
        "a[0].mine.empty(1000)[:] = 1\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    before = set(SHM.iterdir())
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=repository) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGKILL)
    assert not [p for p in set(SHM.iterdir()) - before if "shardc" in p.name]
