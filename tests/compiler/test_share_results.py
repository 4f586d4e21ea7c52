"""Which results of collectives lie in sections of the arena that members of a group may share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardc.compiler.lower.buffers.assign_buffers import assign_buffers
from shardc.compiler.lower.buffers.check_plan import check_plan
from shardc.compiler.lower.buffers.linearise import LinearSteps, linearise
from shardc.compiler.lower.buffers.share_results import share_results
from shardc.compiler.lower.lowered import Lowered
from shardc.compiler.lower.pipeline import lower
from shardc.hlo.errors import VerificationError
from tests.compiler.checking import CHECKED, program

GROUPS = "replica_groups={{0,1},{2,3}}, channel_id=%d, use_global_device_ids=true"
READ = "zero = f32[] constant(0)\nROOT r = f32[300] reduce(g, zero), dimensions={1}, to_apply=sum"


def lowered(lines: str) -> tuple[LinearSteps, Lowered]:
    module = program(lines, header=", num_partitions=4").with_(partitioned=True)
    out = lower(module, CHECKED)
    return linearise(out.module), out


GATHER = f"""x = f32[150,300] parameter(0)
g = f32[300,300] all-gather(x), dimensions={{0}}, {GROUPS % 1}
{READ}"""
REDUCE = f"""x = f32[300,300] parameter(0)
g = f32[300,300] all-reduce(x), to_apply=sum, {GROUPS % 1}
{READ}"""
#: In place the sum needs one array, shared it would need two.
OVER_ITS_OPERAND = f"""x = f32[300,300] parameter(0)
y = f32[300,300] sine(x)
g = f32[300,300] all-reduce(y), to_apply=sum, {GROUPS % 1}
{READ}"""
#: The small result is not worth pages.
SMALL = """x = f32[15,30] parameter(0)
g = f32[30,30] all-gather(x), dimensions={0}, replica_groups={{0,1},{2,3}}, channel_id=1, use_global_device_ids=true
zero = f32[] constant(0)
ROOT r = f32[30] reduce(g, zero), dimensions={1}, to_apply=sum"""


@pytest.mark.parametrize(("lines", "count"), [(GATHER, 1), (REDUCE, 1), (OVER_ITS_OPERAND, 0), (SMALL, 0)])
def test_sections(lines: str, count: int) -> None:
    linear, out = lowered(lines)
    plan = out.plan
    assert len(plan.sections) == count
    assert plan.arena_bytes <= assign_buffers(linear).arena_bytes + 4096 * count
    for section in plan.sections:
        assert section.offset % 4096 == 0
        assert section.groups.expand() == ((0, 1), (2, 3))
        (collective,) = out.collectives
        ref = plan.ref(collective.results[0])
        assert section.offset <= ref.offset
        assert ref.offset + ref.nbytes <= section.offset + section.nbytes <= plan.arena_bytes


def test_what_else_is_written_there_is_found() -> None:
    linear, _ = lowered(OVER_ITS_OPERAND + "\n")
    plan = share_results(linear, assign_buffers(linear))
    other, out = lowered(GATHER)
    (section,) = out.plan.sections
    with pytest.raises(VerificationError, match="where a group shares memory"):
        check_plan(linear, replace(plan, sections=(replace(section, offset=0, nbytes=plan.arena_bytes),)))
    shared = share_results(other, assign_buffers(other))
    check_plan(other, shared)
    with pytest.raises(VerificationError, match="no part of an arena"):
        check_plan(other, replace(shared, sections=(replace(section, offset=section.offset + 64),)))
