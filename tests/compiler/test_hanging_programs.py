"""Programs whose devices would wait for each other forever are refused when they are compiled."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.hlo.errors import UnsupportedError, VerificationError
from shardc.hlo.text.reader import read_hlo
from shardc.stages.stages import Program

TEXT = """HloModule m, num_partitions=4

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

yes {
  x = f32[8] parameter(0)
  ROOT r = f32[8] all-reduce(x), channel_id=1, replica_groups=$GROUPS$, use_global_device_ids=true, to_apply=sum
}

no {
  x = f32[8] parameter(0)
  ROOT m = f32[8] $ELSE$
}

ENTRY main_spmd {
  x = f32[8] parameter(0), sharding={devices=[4]<=[4]}
  id = u32[] partition-id()
  two = u32[] constant(2)
  low = pred[] compare(id, two), direction=$DIRECTION$
  ROOT y = f32[8] conditional(low, x, x), true_computation=yes, false_computation=no
}
"""


def program(groups: str, direction: str = "LT", other: str = "negate(x)") -> Program:
    text = TEXT.replace("$GROUPS$", groups).replace("$DIRECTION$", direction).replace("$ELSE$", other)
    return Program(read_hlo(text, "m.hlo"))


def test_a_group_of_which_only_some_come() -> None:
    with pytest.raises(VerificationError, match="device 0 would wait forever in all-reduce %r for device 2"):
        program("{{0,2},{1,3}}").propagate().partition().compile().driver  # noqa: B018


def test_two_collectives_that_wait_for_each_other() -> None:
    other = "all-reduce(x), channel_id=2, replica_groups={{0,2},{1,3}}, use_global_device_ids=true, to_apply=sum"
    with pytest.raises(VerificationError, match=r"device 0 in all-reduce %r, device 2 in all-reduce %m"):
        program("{{0,2},{1,3}}", other=other).propagate().partition().compile().driver  # noqa: B018


def test_groups_that_come_as_a_whole_need_a_process_of_their_own() -> None:
    with pytest.raises(UnsupportedError, match="devices 0 and 2 of one process reach different collectives"):
        program("{{0,1},{2,3}}").propagate().partition().compile().driver  # noqa: B018


def test_a_condition_that_is_the_same_everywhere() -> None:
    compiled = program("{{0,2},{1,3}}", "GE", "copy(x)").propagate().partition().compile
    always = TEXT.replace("constant(2)", "constant(4)").replace("$GROUPS$", "{{0,2},{1,3}}")
    always = always.replace("$DIRECTION$", "LT").replace("$ELSE$", "copy(x)")
    (y,) = Program(read_hlo(always, "m.hlo")).propagate().partition().compile().run([np.arange(32, dtype=np.float32)])
    np.testing.assert_array_equal(np.asarray(y)[:8], np.arange(8, dtype=np.float32) * 2 + 16)
    with pytest.raises(VerificationError):
        compiled()
