"""What the client is given stays where it is, and answers that are asked for again take no more memory."""

from __future__ import annotations

import ctypes

from shardc.frontends.pjrt.kept_memory import KeptMemory


def test_the_same_answer_is_the_same_memory() -> None:
    memory = KeptMemory()
    first = memory.texts(["device", "host"]), memory.numbers([3, 4]), memory.short_numbers([3, 4])
    for _ in range(100):
        assert (memory.texts(["device", "host"]), memory.numbers([3, 4]), memory.short_numbers([3, 4])) == first
    assert len(memory._answers) == 6 and memory._kept == []
    assert memory.text("device").data != memory.text("device ").data
    assert ctypes.string_at(memory.text("device").data) == b"device"


def test_what_may_change_is_not_shared() -> None:
    memory = KeptMemory()
    one, other = memory.keep(ctypes.c_int64(1)), memory.keep(ctypes.c_int64(1))
    assert one != other
