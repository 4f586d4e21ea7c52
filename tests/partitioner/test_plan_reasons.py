"""What a plan says of itself, as data."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from shardc.hlo.codec import plain
from shardc.partitioner.plan.plan_reasons import PlanReasons
from tests.partitioner.example_plan import example_plan


def test_decisions_say_what_they_differ_in_and_take() -> None:
    plan = example_plan()
    assert [d.names[0] for d in plan.moved] == ["carry.7", "dot.12", "tanh.1"]
    carry = plan.decisions[1]
    assert (carry.local_bytes, carry.bytes_in(carry.wanted)) == (2048 * 4096 * 2 // 4, 2048 * 4096 * 2 // 8)


def test_gap_is_what_is_not_proven() -> None:
    plan = example_plan()
    assert plan.gap == pytest.approx(0.01 / 1.41)
    assert replace(plan, bound=2.0).gap == 0.0
    assert replace(plan, cost=0.0, bound=0.0).gap == 0.0
    assert plan.proof == "no plan is below 1.4 s (gap 0.71%, integer program)"


@pytest.mark.parametrize(
    ("bound", "proof"),
    [(math.inf, "by the model's estimate of memory, no plan is within 29.8 GiB ("), (-math.inf, "no bound is")],
)
def test_without_a_bound_there_is_no_gap(bound: float, proof: str) -> None:
    plan = replace(example_plan(), bound=bound, wanted_cost=math.inf)
    assert plan.gap is None and plan.proof.startswith(proof)
    told = json.loads(json.dumps(plan.to_dict(), allow_nan=False))
    assert (told["bound"], told["gap"], told["wanted_cost"]) == (None, None, None)


def test_a_bound_above_a_program_that_exists_is_not_told_as_one() -> None:
    plan = replace(example_plan(), bound=1.5, unit="B")
    assert plan.proof == "the cost model overestimates the bytes: by it, no plan is below 2 B (integer program)"


def test_plain_data_is_json_with_every_decision() -> None:
    plan = example_plan()
    told = json.loads(json.dumps(plan.to_dict(), allow_nan=False))
    assert told["mesh"] == {"data": 4, "model": 2} and told["gap"] == pytest.approx(plan.gap)
    assert told["judged"] == {"cost": 1.45, "peak_bytes": 31.4e9}
    assert [d["names"] for d in told["decisions"]] == [list(d.names) for d in plan.decisions]
    moved = told["decisions"][1]
    assert (moved["wanted"], moved["chosen"]) == ("[{}, {data, model}]", "[{data}, {}]")
    assert moved["shape"] == "bf16[2048,4096]" and moved["wanted_local_bytes"] == 2 * moved["local_bytes"] / 4
    assert told["decisions"][3]["next_best"] == "" and told["decisions"][3]["next_more"] is None
    assert told["rows"][0]["at"] == "dot.12" and told["rows"][0]["heaviest"][0] == ["params['w1']", 12e9]


def test_a_plan_goes_through_text_and_back() -> None:
    plan = example_plan()
    assert plain.from_json(PlanReasons, plain.to_json(plan)) == plan


def test_one_of_each_kind_tells_more_than_many_of_one() -> None:
    plan = example_plan()
    weights, carry, product, *_ = plan.decisions
    alike = tuple(replace(carry, names=(f"carry.{n}",), wanted_more=20.0 + n) for n in range(3))
    told = replace(plan, decisions=(weights, *alike, product)).most_telling(3)
    assert [d.names[0] for d in told] == ["params['w1']", "carry.2", "dot.12"]
    assert replace(plan, decisions=alike).most_telling(9) == alike
