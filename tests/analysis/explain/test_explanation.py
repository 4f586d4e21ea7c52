"""What explain answers: structure, chains, remedies that hold, differences; on programs from JAX."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jax
import pytest

import shardc
from shardc.analysis.explain.candidates import AnnotatableNames, spec_text
from shardc.analysis.explain.collect import collect_collectives
from shardc.analysis.explain.difference import difference
from shardc.analysis.explain.explanation import CollectiveReason, Explanation
from shardc.partitioner.strategy.cause import causes_of
from shardc.sharding.notations.names import pattern_of
from shardc.stages.stages import Partitioned
from tests.analysis.explain import explain_programs as programs
from tests.analysis.explain.transformer import transformer


@cache
def wrong() -> Partitioned:
    """Megatron with the second weight split along the wrong dimension, which a plan would make up for."""
    return programs.megatron(w2=jax.P(None, "model")).partition(plan="propagated")


@cache
def explained() -> Explanation:
    return wrong().explanation(remedies=3, tries=3)


def gather() -> CollectiveReason:
    return next(c for c in explained().collectives if c.op == "all-gather")


def test_every_collective_is_told_once_the_most_costly_first() -> None:
    names = [n for c in explained().collectives for n in c.names]
    assert sorted(names) == sorted(c["name"] for c in wrong().report()["collectives"])
    costs = [c.wire_bytes for c in explained().collectives]
    assert costs == sorted(costs, reverse=True)
    assert sum(costs) == explained().totals.wire_bytes == wrong().report()["wire_bytes"]
    assert explained().of(names[-1]) is explained().collectives[-1]


def test_a_chain_goes_from_the_annotation_to_the_conflict() -> None:
    c = gather()
    assert (c.before, c.after) == ("[{data}, {model}]", "[{data}, {}]")
    moved = next(p for p in c.parties if p.role == "moved")
    assert moved.annotation == "params['w1'] dimension 1: model"
    assert [link.kind for link in moved.chain] == ["annotation"] + ["step"] * (len(moved.chain) - 1)
    for before, after in zip(moved.chain, moved.chain[1:], strict=False):
        assert (after.source, after.source_dimension) == (before.value, before.dimension)
    assert moved.chain[-1].value == moved.tensor == c.value
    against = [p for p in c.parties if p.role == "against"]
    assert {p.tensor for p in against} >= {"params['w2']"}
    assert all(p.axes == ("model",) for p in against)
    assert "explain_programs.py:" in c.line


def test_alternatives_carry_their_costs() -> None:
    choice = gather().choice
    assert choice is not None and choice.opcode == "dot" and choice.unit == "B"
    assert choice.cost == gather().wire_bytes
    assert choice.alternatives and all(a.cost >= choice.cost for a in choice.alternatives)
    assert any("k over model" in a.factors for a in choice.alternatives)


def again(program: shardc.Program, specs: dict[str, str]) -> dict[str, Any]:
    """The report after annotating, independently of what explain remembers."""
    return program.annotate(specs).propagate().partition(plan="propagated").report()


@pytest.mark.parametrize("what", ["wrong", pytest.param("fsdp", marks=pytest.mark.full)])
def test_remedies_do_what_they_promise(what: str) -> None:
    partitioned = wrong() if what == "wrong" else programs.fsdp_scan().partition(plan="propagated")
    told = explained() if what == "wrong" else partitioned.explanation(remedies=1, tries=4)
    before = partitioned.report()
    remedies = [(c, r) for c in told.collectives for r in c.remedies]
    remedies += [(None, w.way_out.remedy) for w in told.warnings if w.way_out.remedy is not None]  # type: ignore[misc]
    assert remedies or what != "wrong"
    for c, remedy in remedies:
        after = again(partitioned.program, {x.name: x.spec for x in remedy.changes})
        assert after["wire_bytes"] == remedy.after.wire_bytes < before["wire_bytes"] == remedy.before.wire_bytes
        assert after["peak_bytes"] == remedy.after.peak_bytes
        assert after["flops"] == remedy.after.flops <= 1.02 * before["flops"]
        if remedy.removes:
            left = {(d["op"], v) for d in after["collectives"] for v in d["value"].split(", ")}
            first = c.value.split(" ")[0].lstrip("%")
            assert (c.op, first) not in left


def test_the_mistake_is_found_and_its_cure() -> None:
    best = gather().remedies[0]
    assert best.removes
    assert {(x.name, x.spec) for x in best.changes} == {
        ("params['w2']", "model,None"),
        ("result[0]['w2']", "model,None"),
    }
    right = programs.megatron().partition().report()
    assert best.after.wire_bytes == right["wire_bytes"]


def test_where_nothing_helps_it_says_why() -> None:
    params = {"w1": programs.shape(64, 128), "b1": programs.shape(128), "w2": programs.shape(128, 64)}
    batch = (programs.shape(8192, 64), programs.shape(8192, 64))
    whole = jax.tree.map(lambda _: jax.P(), params)
    specs, results = (whole, jax.P("data"), jax.P("data")), (whole, jax.P())
    partitioned = programs.program(programs.train, (params, *batch), programs.DATA4, specs, results).partition()
    (c,) = partitioned.explanation(remedies=1, tries=6).collectives
    assert c.op == "all-reduce" and c.tried > 5
    assert all(r.after.peak_bytes < r.before.peak_bytes for r in c.remedies)  # at most the weights' own split
    (c,) = partitioned.explanation(remedies=1, tries=2).collectives
    assert (
        not c.remedies and "every such split needs this reduction" in c.why_none and "x dimension 0: data" in c.why_none
    )


def test_equal_layers_are_told_once_and_cured_together() -> None:
    partitioned = transformer(2, down=jax.P(None, "model")).partition(plan="propagated")
    told = partitioned.explanation(remedies=1, tries=2)
    first = told.collectives[0]
    assert len(first.names) == 2
    assert len(told.collectives) < len(partitioned.report()["collectives"])
    changes = {(x.name, x.spec) for r in first.remedies for x in r.changes}
    assert ("params['layers'][*]['down']", "model,None") in changes
    assert "x 2 over model" in told.as_text()


def test_data_and_text_tell_the_same() -> None:
    data = json.loads(json.dumps(explained().to_dict()))
    assert data["version"] == 1 and data["totals"]["wire_bytes"] == explained().totals.wire_bytes
    assert [c["names"] for c in data["collectives"]] == [list(c.names) for c in explained().collectives]
    text = explained().as_text(verbose=True)
    for c in explained().collectives:
        assert c.names[0] in text and c.line in text
        for r in c.remedies:
            assert all(x.option in text for x in r.changes)
    shorter = explained().as_text(top=1)
    assert "and 3 more" in shorter and len(shorter) < len(text)
    assert wrong().explain() and all(isinstance(entry, str) for entry in wrong().explain())


def test_seconds_on_a_machine() -> None:
    partitioned = programs.megatron().partition(machine="h100-dgx")
    told = partitioned.explanation("h100-dgx")
    assert told.totals.seconds is not None and told.totals.seconds > 0
    seconds = [c.seconds for c in told.collectives]
    assert all(s is not None and s > 0 for s in seconds)
    assert seconds == sorted(seconds, reverse=True)  # type: ignore[type-var]
    assert all(c.choice is None or c.choice.unit == "s" for c in told.collectives)


def test_a_difference_turns_around() -> None:
    a, b = wrong(), programs.megatron().partition()
    there, back = difference(a, b), difference(b, a)
    assert (there.before, there.after) == (back.after, back.before)
    turned = {(what, new, old, then, now) for what, old, new, now, then in back.collectives}
    assert set(there.collectives) == turned
    changed = {name: (old, new) for name, old, new in there.shardings}
    assert changed["params['w2']"] == ("[{}, {model}]", "[{model}, {}]")
    assert {name: (new, old) for name, old, new in back.shardings} == changed
    vanished = [row for row in there.collectives if not row[4]]
    assert any("all-gather" in row[0] for row in vanished)
    wire = sum(row[2] - row[1] for row in there.collectives)
    assert wire == there.after.wire_bytes - there.before.wire_bytes
    assert not difference(a, a).collectives and not difference(a, a).shardings
    assert "collectives that vanish" in there.as_text()


def test_a_parameter_changes_with_its_update() -> None:
    propagated = programs.megatron().propagate()
    names = AnnotatableNames(propagated.provenance, propagated.program.module)
    value = names.argument("params['w1']")
    assert value is not None and names.is_returned(value)
    assert {names.of(v) for v in names.family(value)} == {"params['w1']", "result[0]['w1']"}
    x = names.argument("x")
    assert x is not None and not names.is_returned(x)
    assert names.argument("nothing") is None


def test_names_and_specs() -> None:
    assert pattern_of("layers[3].w12") == "layers[#].w#"
    sharding = programs.megatron().propagate().module.parameters[0].axis_sharding
    assert spec_text(sharding.dims) == "model"
    assert spec_text(()) == "None"


def test_a_program_given_partitioned_is_explained_as_far_as_it_goes() -> None:
    from shardc.hlo.text.reader import read_hlo
    from shardc.stages.stages import Program
    from tests.launcher.test_given_partitioned import DUMP

    told = Program(read_hlo(DUMP)).partition().explanation(remedies=2)
    assert [c.op for c in told.collectives] == ["all-reduce"]
    assert not told.collectives[0].parties
    assert [(w.kind, w.subject) for w in told.warnings] == [("redundant-compute", "axis_0")]  # pairs do the same
    assert "all-reduce" in told.as_text()


@pytest.mark.parametrize("make", [programs.megatron, programs.fsdp_scan], ids=["megatron", "fsdp"])
def test_collectives_carry_their_causes_through_all_passes(make: Any) -> None:
    partitioned = make().partition(machine="h100-dgx", windowed_einsum="always", pipelined_loops="always")
    rows = partitioned.report()["collectives"]
    found = [i for group in collect_collectives(partitioned) for i in group.instructions]
    assert sorted(i.name for i in found) == sorted(row["name"] for row in rows)
    for i in found:
        assert causes_of(i.origin), f"%{i.name}: {i.origin}"


def test_odd_programs_are_explained(repository: Path) -> None:
    files = sorted((repository / "tests" / "partitioner" / "regressions").glob("*.hlo"))
    assert files
    for path in files:
        partitioned = shardc.load(path).partition()
        told = partitioned.explanation()
        assert sum(len(c.names) for c in told.collectives) == len(partitioned.report()["collectives"])
        assert told.as_text(top=0, verbose=True)
