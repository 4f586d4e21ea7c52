"""A plan in words: in `explain`, and in the report's data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import shardc
from shardc.analysis.explain.explanation import Explanation
from shardc.analysis.explain.plan_text import plan_text
from shardc.hlo.codec import plain
from shardc.hlo.ir.mesh import Mesh
from shardc.stages.stages import Partitioned
from tests.partitioner.example_plan import example_plan

DEMO = Path(shardc.__file__).parent / "demo" / "step.hlo"


@pytest.fixture(scope="module")
def planned() -> Partitioned:
    """The demo's program, with the plan of another."""
    return replace(shardc.load(DEMO).propagate().partition(), plan=example_plan())


def test_each_decision_says_wanted_chosen_next_best_and_the_row() -> None:
    told = "\n".join(plan_text(example_plan()))
    moved = "plan: 3 of 5 decided values have another layout than propagation gave them"
    assert f"{moved}; memory 29.2 GiB instead of 41.3 GiB" in told
    assert "no plan is below 1.4 s (gap 0.71%, integer program)" in told
    carry = told[told.index("- loop array 2 carry.7") :]
    assert carry.startswith(
        "- loop array 2 carry.7 bf16[2048,4096] (/home/me/train.py:31): [{data}, {}] instead of [{}, {data, model}]\n"
        "     as propagated it costs 13.9 s more; next best [{data}, {model}], 210 ms more; "
        "4.0 MiB of a device where memory limits the plan, at %dot.12\n"
    )
    assert (
        "memory limits the plan at %dot.12 (/home/me/train.py:34): 29.2 GiB of 29.8 GiB; one more GiB would save 268 ms"
        in told
    )


def test_the_most_telling_decisions_are_shown_and_the_others_counted() -> None:
    plan = example_plan()
    few = list(plan_text(plan, top=2))
    assert [line.split()[1:4:2] for line in few if line.startswith("   - ")] == [["loop", "2"], ["dot", "(+1"]]
    assert "   and 3 more decisions (-v, or verbose=True, shows them)" in few
    everything = list(plan_text(plan, top=2, verbose=True))
    assert sum(line.startswith("   - ") for line in everything) == len(plan.decisions)


def test_a_plan_that_was_not_taken_says_why() -> None:
    told = next(plan_text(replace(example_plan(), taken=False, why="nothing is cheaper")))
    assert told == "plan: the propagated layouts stay: nothing is cheaper"


def test_explanation_and_report_have_the_plan(planned: Partitioned) -> None:
    explanation = planned.explanation()
    assert explanation.plan == example_plan()
    assert "- loop array 2 carry.7" in explanation.as_text()
    assert explanation.to_dict()["plan"] == planned.report()["plan"] == example_plan().to_dict()
    assert plain.from_json(Explanation, plain.to_json(explanation)) == explanation


def test_notebooks_show_the_plan(planned: Partitioned) -> None:
    shown = planned.explanation()._repr_html_()
    assert "no plan is below 1.4 s (gap 0.71%, integer program)" in shown
    assert "params[&#x27;w1&#x27;] (+1 like it)" in shown
    assert "+13.9 s" in shown and "[{data}, {model}] +210 ms" in shown


def test_without_a_plan_nothing_is_said_of_one(planned: Partitioned) -> None:
    explanation = replace(planned, plan=None).explanation()
    assert explanation.plan is None and explanation.to_dict()["plan"] is None


def test_why_no_plan_was_taken_is_told_on_demand(planned: Partitioned) -> None:
    explanation = replace(planned, plan=None, why_no_plan="the best plan changes nothing").explanation()
    assert "no plan was taken: the best plan changes nothing" in explanation.as_text(verbose=True)
    assert "no plan was taken" not in explanation.as_text()
    assert explanation.to_dict()["why_no_plan"] == "the best plan changes nothing"
    assert "plan:" not in explanation.as_text()


LAYERS = """HloModule layers

ENTRY main {
  x = bf16[65536,8192]{1,0} parameter(0), metadata={op_name="x"}
  w1 = bf16[8192,8192]{1,0} parameter(1), metadata={op_name="w1"}
  w2 = bf16[8192,8192]{1,0} parameter(2), metadata={op_name="w2"}
  h = bf16[65536,8192]{1,0} dot(x, w1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = bf16[65536,8192]{1,0} tanh(h), metadata={op_name="jit(f)/tanh" source_file="layer.py" source_line=7}
  ROOT o = bf16[65536,8192]{1,0} dot(t, w2), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def test_a_plan_that_was_made_is_told_and_drawn(tmp_path: Path) -> None:
    """Weights split as in FSDP, the batch too: the plan keeps activations by rows, as the batch is."""
    (tmp_path / "layers.hlo").write_text(LAYERS)
    specs = {"x": "data,model", "w1": "model,data", "w2": "model,data", "o": "data,model"}
    program = shardc.load(tmp_path / "layers.hlo").annotate(specs, mesh=Mesh({"data": 4, "model": 4}))
    partitioned = program.propagate().partition(machine="h100-dgx", plan="global")
    plan = partitioned.plan
    assert plan is not None and plan.cost <= plan.wanted_cost and plan.bound <= plan.cost
    explanation = partitioned.explanation("h100-dgx")
    assert plain.from_json(Explanation, plain.to_json(explanation)) == explanation
    told = explanation.as_text(verbose=True)
    assert plan.taken and plan.decisions and all(f" {d.names[0]}" in told for d in plan.decisions)
    partitioned.draw_plan(tmp_path / "plan.svg")
    partitioned.write_report(tmp_path / "page.html", machine="h100-dgx")
    assert plan.proof in (tmp_path / "plan.svg").read_text()
