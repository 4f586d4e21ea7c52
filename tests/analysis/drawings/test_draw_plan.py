"""The picture of a plan: what it says is what the plan says."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

import shardc
from shardc.hlo.errors import InputError
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import array_shape
from shardc.launcher.drawings.draw_plan import plan_svg
from shardc.partitioner.plan.plan_reasons import LayoutDecision, PlanReasons
from tests.partitioner.example_plan import MESH, example_plan

_SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [e.text or "" for e in ET.fromstring(svg).iter(f"{_SVG}text")]


def only(plan: PlanReasons, *decisions: LayoutDecision) -> PlanReasons:
    return replace(plan, decisions=decisions, rows=(), usage=(), wanted_usage=())


def filled(svg: str, colour: str) -> list[tuple[float, float]]:
    rects = [e for e in ET.fromstring(svg).iter(f"{_SVG}rect") if e.get("fill") == colour]
    return [(float(e.get("width", 0)), float(e.get("height", 0))) for e in rects]


def test_every_figure_of_the_plan_is_told() -> None:
    told = texts(plan_svg("jit_step", example_plan()))
    said = "\n".join(told)
    assert "a step takes 1.45 s, as propagated 15.4 s; memory of a device 29.2 GiB, as propagated 41.3 GiB" in said
    assert "by the plan's own model 1.41 s instead of 15.4 s; no plan is below 1.4 s (gap 0.71%" in said
    assert {"params['w1'] (+1 like it)", "loop bf16[2048,4096], array 2", "train.py:34, dot_general, 100 times"} <= set(
        told
    )
    assert {"+13.9 s", "+210 ms", "data,None, partial sum over model", "limit 29.8 GiB", "not known"} <= set(told)
    assert told.count("the same") == 2 and "one more GiB would save 268 ms" in said


@pytest.mark.parametrize(
    ("dims", "part"),
    [
        ((None, None), (76, 38)),
        (("data", None), (76, 38 / 4)),
        ((None, "model"), (76 / 2, 38)),
        (("model", "data"), (76 / 4, 38 / 2)),
        ((("data", "model"), None), (76, 38 / 8)),
    ],
)
def test_the_filled_part_is_the_share_of_a_device(dims: tuple[object, ...], part: tuple[float, float]) -> None:
    plan = example_plan()
    d = replace(plan.decisions[0], chosen=Sharding.of(MESH, *dims), wanted=Sharding.of(MESH, *dims))  # type: ignore[arg-type]
    (found,) = filled(plan_svg("f", only(plan, d)), "#3f6fa3")
    assert found == pytest.approx(part, abs=0.06)


def test_bars_are_as_long_as_what_another_layout_adds() -> None:
    svg = plan_svg("f", example_plan())
    bars = [width for colour in ("#c0392b", "#222") for width, height in filled(svg, colour) if height == 4]
    assert bars == pytest.approx([240, 240 * 6.5 / 13.9, 1, 240 * 0.21 / 13.9, 1], abs=0.5)


def test_the_axis_of_memory_has_round_figures() -> None:
    told = texts(plan_svg("f", example_plan()))
    assert {"0 B", "8.0 GiB", "16.0 GiB", "24.0 GiB", "32.0 GiB", "40.0 GiB"} <= set(told)


def test_partial_values_are_hatched() -> None:
    plan = example_plan()
    assert filled(plan_svg("f", only(plan, plan.decisions[2])), "url(#partial)") == [(76.0, 9.5)]


def test_scalars_vectors_and_thousands_of_parts_are_drawn() -> None:
    plan, mesh = example_plan(), Mesh({"a": 128, "b": 128})
    shapes = [
        ((), ()), ((8,), (None,)), ((16384,), ("a",)), ((4096, 4096), ("a", "b")),
        ((256, 128, 512), ("a", "b", None)), ((2, 2, 128), (None, None, "b")),
    ]  # fmt: skip
    decisions = [
        LayoutDecision((f"v{n}",), "value", 0, "add", "", "", array_shape("f32", *dims), s, s)
        for n, (dims, axes) in enumerate(shapes)
        for s in [Sharding.of(mesh, *axes)]
    ]
    svg = plan_svg("a<b&c", replace(only(plan, *decisions), mesh=mesh))
    assert svg.count("v5") == 1 and "16384 parts" in texts(svg)
    assert all(w >= 2 and h >= 2 for w, h in filled(svg, "#3f6fa3"))


def test_a_long_plan_shows_what_tells_most_in_program_order() -> None:
    plan = example_plan()
    extra = [replace(plan.decisions[4], names=(f"small.{n}",)) for n in range(60)]
    told = texts(plan_svg("f", only(plan, *extra, *plan.decisions), rows=4))
    shown = [t for t in told if t.split(" ")[0] in {d.names[0] for d in plan.decisions} | {d.names[0] for d in extra}]
    assert shown == ["params['w1'] (+1 like it)", "carry.7", "dot.12 (+1 like it)", "tanh.1"]
    assert "and 61 more decisions that make less of a difference" in told


def test_memory_of_a_long_program_keeps_its_peak() -> None:
    plan = replace(example_plan(), usage=tuple(float(n == 54_321) for n in range(100_000)), limit=None, rows=())
    (area,) = ET.fromstring(plan_svg("f", replace(plan, wanted_usage=()))).iter(f"{_SVG}polygon")
    points = [tuple(map(float, p.split(","))) for p in (area.get("points") or "").split()]
    assert len(points) < 3000
    assert max(y for _, y in points) - min(y for _, y in points) == pytest.approx(150 / 1.05, abs=0.2)


def test_a_plan_that_was_not_taken_says_why() -> None:
    told = texts(plan_svg("f", replace(example_plan(), taken=False, why="it takes more memory than there is")))
    assert "the propagated layouts stay: it takes more memory than there is" in told


def test_a_partitioned_program_draws_its_plan(tmp_path: Path) -> None:
    demo = Path(shardc.__file__).parent / "demo" / "step.hlo"
    partitioned = shardc.load(demo).propagate().partition()
    with pytest.raises(InputError, match="no plan to draw"):
        partitioned.draw_plan(tmp_path / "plan.svg")
    replace(partitioned, plan=example_plan()).draw_plan(tmp_path / "plan.svg")
    assert "carry.7" in texts((tmp_path / "plan.svg").read_text())
