"""Memory over time: blocks, bytes in use, the peak, and the picture."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest

from shardc.compiler.lower.buffers.memory_timeline import MemoryTimeline, memory_timeline
from shardc.compiler.lower.lowered import Lowered, memory_analysis
from shardc.compiler.lower.pipeline import lower
from shardc.launcher.drawings.draw_memory import memory_svg
from tests.compiler.checking import program

SQUARE = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
#: Two products that are both needed for a third; 4 KiB each.
THREE = (
    f"x = f32[32,32] parameter(0)\na = f32[32,32] dot(x, x), {SQUARE}\nb = f32[32,32] dot(a, x), {SQUARE}\n"
    f'c = f32[32,32] dot(a, b), {SQUARE}, metadata={{op_name="third <&>"}}\n'
    "z = f32[] constant(0)\nROOT r = f32[32] reduce(c, z), dimensions={1}, to_apply=sum"
)


def lowered(lines: str, header: str = "") -> Lowered:
    return lower(program(lines, header=header))


def timeline(lines: str, header: str = "") -> MemoryTimeline:
    return memory_timeline(lowered(lines, header))


def test_what_is_in_use_at_each_step() -> None:
    t = timeline(THREE)
    # The argument stays; then a; a and b; a, b and c; c and the sums.
    assert [n - t.fixed_bytes for n in t.in_use[:4]] == [4096, 8192, 12288, 4096 + 128]
    assert t.fixed_bytes == 4096
    assert t.peak == 2
    assert [b.nbytes for b in t.at(t.peak)] == [4096] * 3
    assert any(b.op_name == "third <&>" for b in t.at(t.peak))


def test_blocks_that_are_in_memory_together_do_not_overlap() -> None:
    t = timeline(THREE)
    for position in range(len(t.steps)):
        # Where a copy vanished, both sides are the same memory.
        spans = sorted({(b.offset, b.offset + b.nbytes) for b in t.at(position)})
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.parametrize("aliased", [False, True])
def test_height_is_what_the_analysis_says(aliased: bool) -> None:
    header = ", input_output_alias={ {}: (0, {}, must-alias) }" if aliased else ""
    lines = "x = f32[64,64] parameter(0)\nt = f32[64,64] tanh(x)\nROOT r = f32[64,64] dot(t, x), " + SQUARE
    low = lowered(lines, header)
    t = memory_timeline(low)
    assert t.fixed_bytes + t.written_bytes == memory_analysis(low)["peak_bytes"]
    assert max(t.in_use) <= t.fixed_bytes + t.written_bytes
    kinds = {b.kind for b in t.blocks}
    assert kinds == ({"argument", "temporary", "result"} if aliased else {"temporary", "result"})


def test_empty_program() -> None:
    t = timeline("ROOT x = f32[0] parameter(0)")
    assert t.in_use[t.peak] == 0
    ElementTree.fromstring(memory_svg(t))


def test_picture_names_the_largest_at_the_peak() -> None:
    t = timeline(THREE)
    root = ElementTree.fromstring(memory_svg(t))
    texts = [e.text or "" for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any(text.startswith(f"peak: instruction {t.peak}") for text in texts)
    listed = [text for text in texts if text.startswith("4.0 KiB  ")]
    assert len(listed) == 3
    assert any("third <&>" in text for text in listed)
    hints = [e.text or "" for e in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len([h for h in hints if "4.0 KiB" in h]) >= 3
