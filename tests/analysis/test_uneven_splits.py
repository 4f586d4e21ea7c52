"""A simulated step says which dimensions were padded, and what that wastes."""

from __future__ import annotations

from shardc.analysis.uneven_splits import padding_notes, uneven_splits
from shardc.hlo.text.reader import read_hlo
from shardc.stages.stages import Program

TEXT = """
HloModule m

ENTRY e {
  x = f32[10,6] parameter(0)
  y = f32[10,6] parameter(1)
  ROOT sum = f32[10,6] add(x, y)
}
"""


def test_a_split_that_does_not_divide_is_named_with_its_waste() -> None:
    program = Program(read_hlo(TEXT)).annotate({"x": "d,None"}, mesh={"d": 4})
    (note,) = program.simulate("h100-dgx").notes
    # 4 shards of 3 rows hold 10: of the 72 bytes of a shard of x a sixth is padding.
    assert note == (
        "padding: 10 elements became 12 for 4 shards over d (20.0% more to hold, compute and send): "
        "dimension 0 of x, 1 value inside the program; in arguments 12 B per device on average"
    )


def test_even_splits_have_no_note() -> None:
    module = Program(read_hlo(TEXT)).annotate({"x": "d,None"}, mesh={"d": 5}).propagate().module
    assert uneven_splits(module) == [] and padding_notes(module) == ()
