"""Warnings: silent about programs that are annotated well, and one small program for each pain."""

from __future__ import annotations

from collections.abc import Callable

import jax
import pytest

import shardc
from shardc.analysis.explain.diagnostics.survey import Thresholds
from shardc.analysis.explain.explain import explain
from shardc.analysis.explain.explanation import Diagnostic
from shardc.hlo.errors import InputError
from shardc.partitioner.partition import PIPELINE, Rewrite
from shardc.stages.stages import Partitioned
from tests.analysis.explain import explain_programs as programs
from tests.analysis.explain.transformer import transformer

Make = Callable[[], shardc.Program]


def warned(make: Make, *, remedies: int = 0) -> dict[str, Diagnostic]:
    return {w.kind: w for w in make().partition(plan="propagated").explanation(remedies=remedies, tries=3).warnings}


@pytest.mark.parametrize(
    "make",
    [
        programs.data_parallel,
        programs.fsdp_scan,
        programs.megatron,
        lambda: programs.embedding(jax.P("model", None)),
        lambda: transformer(2),
        lambda: programs.padded(1030),
    ],
    ids=["data parallel", "fsdp in a scan", "megatron", "split embedding", "transformer", "hardly uneven"],
)
def test_no_false_alarms(make: Make) -> None:
    assert warned(make) == {}


def test_an_unused_axis() -> None:
    found = warned(programs.unused_axis, remedies=1)
    assert set(found) == {"unused-axis"}
    w = found["unused-axis"]
    assert w.subject == "model" and w.numbers["size"] == 4 and w.numbers["repeated_share"] == 1
    remedy = w.way_out.remedy
    assert remedy is not None and remedy.after.flops < 0.5 * remedy.before.flops
    changes = {c.name: c.spec for c in remedy.changes}
    assert "unused-axis" not in warned(lambda: programs.unused_axis().annotate(changes))


def test_a_product_that_all_positions_of_an_axis_do() -> None:
    found = warned(programs.one_product_repeated, remedies=1)
    w = found["redundant-compute"]
    assert w.subject == "model" and 0.8 < w.numbers["repeated_share"] < 1
    assert w.way_out.remedy is not None and w.way_out.remedy.after.flops < 0.5 * w.way_out.remedy.before.flops
    assert "explain_programs.py" in w.line


def test_a_forgotten_embedding() -> None:
    found = warned(programs.embedding, remedies=1)
    assert set(found) == {"replicated-parameter"}
    w = found["replicated-parameter"]
    assert w.subject == "params['table']" and w.numbers["bytes"] == 8192 * 128 * 4 and w.numbers["copies"] == 4
    remedy = w.way_out.remedy
    assert remedy is not None and remedy.after.peak_bytes < remedy.before.peak_bytes - w.numbers["bytes"] / 2
    assert not warned(lambda: programs.embedding().annotate({c.name: c.spec for c in remedy.changes}))


def test_a_part_of_what_was_gathered() -> None:
    w = warned(programs.part_of_gathered, remedies=1)["full-gather"]
    assert w.numbers == {
        "wire_bytes": 1024 * 256 * 4 * 3 / 4,
        "gathered_bytes": 1024 * 256 * 4,
        "read_bytes": 16 * 256 * 4,
    }
    assert w.collectives and w.way_out.remedy is not None
    assert w.way_out.remedy.after.wire_bytes < 0.1 * w.numbers["wire_bytes"]


def test_a_gather_after_which_all_do_the_same() -> None:
    found = warned(programs.gathered_for_all)
    assert set(found) == {"full-gather", "redundant-compute"}
    assert "all devices along it then compute the same dot" in found["full-gather"].text


@pytest.mark.parametrize("loop", [False, True])
def test_back_and_forth(loop: bool) -> None:
    w = warned(lambda: programs.back_and_forth(loop=loop), remedies=1)["back-and-forth"]
    assert w.numbers["times"] == (8 if loop else 1) and len(w.collectives) == 2
    assert w.way_out.remedy is not None and w.way_out.remedy.after.wire_bytes == 0
    assert ("8 times" in w.text) == loop


def test_a_result_that_does_not_divide() -> None:
    program = shardc.from_jax(jax.jit(lambda x: x[1:] + 1), jax.ShapeDtypeStruct((4096,), "float32"))
    w = warned(lambda: program.annotate({"x": shardc.P("d")}, mesh={"d": 4}))["whole-result"]
    assert (w.subject, w.numbers) == ("result", {"bytes": 4095 * 4.0, "part_bytes": 4096.0})
    assert "of size 4095 is not divisible by the 4 parts over d" in w.text
    kept = program.annotate({"x": shardc.P("d"), "result": shardc.P("d")}, mesh={"d": 4})
    assert "whole-result" not in warned(lambda: kept)


def test_padding() -> None:
    w = warned(lambda: programs.padded(9))["padding"]
    assert w.subject == "x" and w.numbers["padding"] == pytest.approx(1 / 3)
    assert w.numbers["idle_devices"] == 1 and "8 or 12" in w.way_out.text


def test_a_sum_of_equals() -> None:
    """The optimised program has none: what the rewriting alone leaves is looked at."""
    propagated = programs.summed_alike().propagate()
    module = propagated.module
    for step in PIPELINE:
        module = step.run(module)
        if isinstance(step, Rewrite):
            break
    (w,) = Partitioned(propagated, module, {}).explanation().warnings
    assert w.kind == "redundant-reduction" and w.numbers == {"wire_bytes": 1536, "copies": 4}
    assert not propagated.partition().explanation().warnings


def test_small_work_done_again_on_purpose_is_no_alarm_on_a_machine() -> None:
    """For the least time the partitioner repeats small products; by bytes the same partitioning is worth a warning."""
    partitioned = programs.megatron(w2=jax.P(None, "model")).partition(machine="h100-dgx", plan="propagated")
    by_time = {w.kind for w in partitioned.explanation("h100-dgx").warnings}
    by_bytes = {w.kind for w in partitioned.explanation().warnings}
    assert "redundant-compute" not in by_time
    assert "redundant-compute" in by_bytes


def test_thresholds() -> None:
    partitioned = programs.embedding().partition()
    assert not explain(partitioned, thresholds=Thresholds(memory=0.5)).warnings
    assert explain(partitioned, thresholds=Thresholds(memory=0.2)).warnings
    assert not partitioned.explanation(thresholds={"memory": 0.5}).warnings
    for wrong in ({"speed": 0.1}, {"wire": -1.0}, {"wire": float("nan")}):
        with pytest.raises(InputError, match="threshold"):
            partitioned.explanation(thresholds=wrong)
