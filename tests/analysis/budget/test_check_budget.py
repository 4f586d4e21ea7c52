"""Programs against budgets: what is forbidden, limits, baselines, and how it is told."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

import shardc
from shardc.analysis.budget.budget import ProgramBudget, budget_of, read_budget
from shardc.analysis.budget.check import check, record
from shardc.analysis.budget.violation import Violation
from shardc.demo.guide import write_guide_files
from shardc.hlo.errors import InputError
from shardc.stages.stages import Partitioned, Program
from tests.cli.programs import MLP


@pytest.fixture(scope="module")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Partitioned:
    """One all-reduce of 4 bytes over both axes, of line m.py:8."""
    path = tmp_path_factory.mktemp("mlp") / "mlp.hlo"
    path.write_text(MLP)
    return shardc.load(path).partition()


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        ({"op": "all-reduce"}, True),
        ({"op": "all-*"}, True),
        ({"op": "all-gather"}, False),
        ({"axis": "axis_0"}, True),
        ({"axis": "axis_1", "above": 4}, False),
        ({"above": 3}, True),
        ({"above": "4 B"}, False),
        ({"except": ["m.py:8"]}, False),
        ({"except": "m.py:*"}, False),
        ({"except": ["m.py:7"]}, True),
        ({"link": "nvlink"}, True),
        ({"link": "infiniband"}, False),
    ],
)
def test_a_collective_is_forbidden_where_all_of_a_rule_holds(
    mlp: Partitioned, rule: dict[str, object], broken: bool
) -> None:
    found = check(mlp, budget_of({"machine": "h100-dgx", "forbid": [rule]}), remedies=0)
    assert found.within is not broken
    for violation in found.violations:
        assert violation.line == "m.py:8"
        assert violation.collective == mlp.report()["collectives"][0]["name"]
        assert violation.reason == mlp.report()["collectives"][0]["reason"]


def test_an_axis_that_the_mesh_lacks_is_an_error(mlp: Partitioned) -> None:
    """Otherwise a misspelt rule would forbid nothing."""
    with pytest.raises(InputError, match="the mesh has no axis 'other'\n  where: budget: forbid 1: axis"):
        check(mlp, budget_of({"forbid": [{"axis": "other"}]}), remedies=0)


def test_links_follow_the_mapping(tmp_path: Path) -> None:
    """The gradient of w goes over one axis alone: on the network where the mapping puts that axis."""
    path = tmp_path / "mlp.hlo"
    path.write_text(
        MLP.replace(
            "ROOT out = (f32[], f32[8,10]{1,0}) tuple(loss, t)",
            "ROOT out = f32[8]{0} reduce(t, zero), dimensions={1}, to_apply=sum",
        )
    )
    program = shardc.load(path).annotate(mesh={"axis_0": 8, "axis_1": 2}).partition()
    assert [c["axes"] for c in program.report()["collectives"]] == [["axis_1"]]
    for links, within in (("axis_0=nvlink,axis_1=infiniband", False), ("axis_0=nvlink+infiniband,axis_1=nvlink", True)):
        facts = {"machine": "h100-dgx", "mapping": links, "forbid": [{"link": "infiniband"}]}
        assert check(program, budget_of(facts), remedies=0).within is within


def test_limits_are_those_of_the_report(mlp: Partitioned) -> None:
    report = mlp.report()
    exact = {k: report[k] for k in ("wire_bytes", "peak_bytes", "flops")}
    assert check(mlp, ProgramBudget(limits=exact)).within
    below = {k: v - 1 for k, v in exact.items()}
    assert [v.rule for v in check(mlp, ProgramBudget(limits=below), remedies=0).violations] == [
        f"limits.{k}" for k in exact
    ]


def test_seconds_are_simulated(mlp: Partitioned) -> None:
    seconds = mlp.simulate("h100-dgx").step_seconds
    assert check(mlp, budget_of({"machine": "h100-dgx", "limits": {"seconds": seconds * 1.001}})).within
    assert not check(mlp, budget_of({"machine": "h100-dgx", "limits": {"seconds": seconds * 0.999}}), remedies=0).within


def test_a_baseline_allows_its_tolerance_and_names_what_grew(
    mlp: Partitioned, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    budget = budget_of({"baseline": "mlp.json", "tolerance": {"flops": 0.5}}, tmp_path / "budget.toml")
    record(mlp, budget)
    assert check(mlp, budget).within
    recorded = json.loads((tmp_path / "mlp.json").read_text())
    recorded["totals"]["wire_bytes"] /= 2
    recorded["totals"]["flops"] /= 1.4
    recorded["collectives"] = []
    (tmp_path / "mlp.json").write_text(json.dumps(recorded))
    (violation,) = check(mlp, budget, remedies=0).violations
    assert (violation.rule, violation.line) == ("baseline.wire_bytes", "m.py:8")
    assert not caplog.records
    (tmp_path / "mlp.json").write_text(json.dumps({**recorded, "mesh": {"other": 3}}))
    check(mlp, budget, remedies=0)
    assert "mlp.json is of another mesh: other=3, not " in caplog.text
    assert "+100.0%" in violation.what
    caplog.clear()
    (tmp_path / "mlp.json").write_text(json.dumps({**recorded, "machine": "tpu-v4"}))
    check(mlp, budget, remedies=0)
    assert "mlp.json is of another machine: tpu-v4, not none" in caplog.text


def test_only_what_collectives_cost_is_blamed_on_one(mlp: Partitioned, tmp_path: Path) -> None:
    budget = budget_of({"baseline": "mlp.json"}, tmp_path / "budget.toml")
    record(mlp, budget)
    recorded = json.loads((tmp_path / "mlp.json").read_text())
    recorded["totals"] = {name: value / 2 for name, value in recorded["totals"].items()}
    recorded["collectives"] = []
    (tmp_path / "mlp.json").write_text(json.dumps(recorded))
    found = {v.rule: bool(v.collective) for v in check(mlp, budget, remedies=0).violations}
    assert found == {"baseline.wire_bytes": True, "baseline.peak_bytes": False, "baseline.flops": False}


def test_a_remedy_is_one_that_explain_finds(tmp_path: Path) -> None:
    path, *_ = (p for p in write_guide_files(tmp_path) if p.suffix == ".mlir")
    wrong = shardc.load(path).annotate({"weights['down']": "None,model"}, mesh={"data": 1, "model": 4})
    (violation,) = check(wrong.partition(), budget_of({"forbid": [{"op": "all-gather"}]})).violations
    assert violation.line == "step.py:17"
    assert "needs dimension 1" in violation.reason
    assert """--annotate "weights['down']=model,None\"""" in violation.remedy
    right = wrong.annotate({"weights['down']": "model,None"})
    assert check(right.partition(), budget_of({"forbid": [{"op": "all-gather"}]})).within


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Its largest collective is an all-reduce of two gradients of 2 MiB that were joined."""
    path, *_ = (p for p in write_guide_files(tmp_path_factory.mktemp("step")) if p.suffix == ".mlir")
    return shardc.load(path).annotate(mesh={"data": 2, "model": 2})


def annotated(program: Program, remedy: str) -> Program:
    """The program with the annotations of a remedy's command line."""
    words = shlex.split(remedy)
    found = [words[at + 1].partition("=") for at, word in enumerate(words) if word == "--annotate"]
    assert found
    return program.annotate({name: spec for name, _, spec in found})


def test_what_a_remedy_leaves_is_told_with_it(step: Program) -> None:
    rule = {"op": "all-*", "axis": "data", "link": "nvlink", "above": "1 MiB"}
    budget = budget_of({"machine": "h100-dgx", "mapping": "model,data", "forbid": [rule]})
    (violation,) = check(step.partition(machine=budget.placed_machine), budget).violations
    options, _, rest = violation.remedy.partition(" (leaves ")
    after = annotated(step, options).partition(machine=budget.placed_machine)
    (left,) = check(after, budget, remedies=0).violations
    assert rest == "all-reduce of transpose.2, divide.1, 2.0 MiB)" and ", 2.0 MiB" in left.what
    others = [
        r
        for c in step.partition(machine=budget.placed_machine)
        .explanation(budget.placed_machine, remedies=1)
        .collectives[:1]
        for r in c.remedies
    ]
    assert len(others) > 1
    for other in others:  # none of them leaves less
        tried = annotated(step, " ".join(change.option for change in other.changes))
        found = check(tried.partition(machine=budget.placed_machine), budget, remedies=0).violations
        assert sum(float(v.what.rpartition(", ")[2].split()[0]) for v in found) >= 2.0


def test_a_remedy_that_brings_a_total_within_its_limit_leaves_nothing(step: Program) -> None:
    partitioned = step.partition()
    for limit, whole in (("4.5 MiB", True), ("1 MiB", False)):
        budget = budget_of({"limits": {"wire_bytes": limit}})
        (violation,) = check(partitioned, budget).violations
        options, _, rest = violation.remedy.partition(" (leaves ")
        after = check(annotated(step, options).partition(), budget, remedies=0)
        assert (after.within, rest == "") == (whole, whole)
        if not whole:
            assert rest.removesuffix(")") in after.violations[0].what


def test_removed_is_what_is_gone_with_all_that_was_joined(step: Program) -> None:
    explanation = step.partition(machine="h100-dgx").explanation("h100-dgx", remedies=1)
    joined = explanation.collectives[0]
    assert "one of 2 collectives that were joined" in joined.value and joined.remedies
    for remedy in joined.remedies:
        after = step.annotate({c.name: c.spec for c in remedy.changes}).partition(machine="h100-dgx")
        told = {name for c in after.report()["collectives"] for name in c["value"].split(", ")}
        assert remedy.removes is told.isdisjoint({"transpose.1", "transpose.2"})


def test_a_size_just_above_its_bound_is_written_in_full(step: Program) -> None:
    largest = max(c["payload_bytes"] for c in step.partition().report()["collectives"])
    facts = {"forbid": [{"op": "all-reduce", "above": largest - 4}]}
    (violation,) = check(step.partition(), budget_of(facts), remedies=0).violations
    assert f"{largest:,} B" in violation.what and f"above {largest - 4:,} B" in violation.rule


def test_annotations_of_github_are_escaped() -> None:
    told = Violation("forbid a, b", "50% more", "a/b.py:12:3", "x\ny", "z", "").as_github()
    assert told == "::error file=a/b.py,line=12,title=shardc%3A forbid a%2C b::50%25 more%0Abecause x%0Ay%0Aremedy: z"
    assert Violation("r", "w").as_github() == "::error title=shardc%3A r::w"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("limit = {}", "did you mean limits"),
        ("[limits]\nbytes = 3", "wire_bytes"),
        ("[limits]\nflops = -3", "-3 is not a number"),
        ("[limits]\nwire_bytes = '3 apples'", "apples"),
        ("[limits]\nseconds = 1", "needs a machine"),
        ("[tolerance]\nwire_bytes = '5 MiB'", "write wire_bytes = 0.05 for 5 % more"),
        ("[tolerance]\nseconds = -1", "write seconds = 0.05 for 5 % more"),
        ("[[forbid]]\nop = 'gather'", "all-gather"),
        ("[[forbid]]\nlink = 'nvlink'", "needs a machine"),
        ("forbid = 3", "write [[forbid]]"),
        ("a = ", "cannot be read"),
    ],
)
def test_a_budget_that_makes_no_sense_says_where(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "budget.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_budget(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_what_is_missing_is_named(mlp: Partitioned, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no budget"):
        read_budget(tmp_path / "none.toml")
    with pytest.raises(InputError, match="no baseline is recorded"):
        check(mlp, ProgramBudget(baseline=tmp_path / "none.json"))
    for text in ("[]", "{", '{"version": 1, "collectives": [{}]}'):
        (tmp_path / "changed.json").write_text(text)
        with pytest.raises(InputError, match="the file is no baseline of version"):
            check(mlp, ProgramBudget(baseline=tmp_path / "changed.json"))
    with pytest.raises(InputError, match="names no file"):
        record(mlp, ProgramBudget())
    with pytest.raises(InputError, match="no links 'wire'"):
        check(mlp, budget_of({"machine": "h100-dgx", "forbid": [{"link": "wire"}]}))
