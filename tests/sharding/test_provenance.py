"""Every axis on every dimension knows where it came from, and what it won against."""

from __future__ import annotations

import json

import pytest

from shardc.hlo.errors import AnnotationError
from shardc.hlo.stablehlo.reader import read_stablehlo
from shardc.sharding.propagate import Propagation, propagate
from shardc.sharding.provenance.explain_value import explain_value
from shardc.sharding.provenance.history_json import provenance_dict
from shardc.sharding.provenance.missed import missed_axes

PROGRAM = """
sdy.mesh @mesh = <["data"=2, "model"=4]>
func.func @main(
    %x: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>} loc("x"("mlp.py":3:1)),
    %w1: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>} loc("w1"("mlp.py":4:1)),
    %w2: tensor<32x6xf32> loc("w2"("mlp.py":5:1)),
    %b: tensor<8x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"data"}]>} loc("b"("mlp.py":6:1))
) -> tensor<8x6xf32> {
  %0 = stablehlo.dot_general %x, %w1, contracting_dims = [1] x [0]
    : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32> loc("h"("mlp.py":10:1))
  %1 = stablehlo.tanh %0 : tensor<8x32xf32> loc("a"("mlp.py":11:1))
  %2 = stablehlo.dot_general %1, %w2, contracting_dims = [1] x [0]
    : (tensor<8x32xf32>, tensor<32x6xf32>) -> tensor<8x6xf32> loc("y"("mlp.py":12:1))
  %3 = stablehlo.add %2, %b : tensor<8x6xf32> loc("out"("mlp.py":13:1))
  return %3 : tensor<8x6xf32>
}
"""


@pytest.fixture(scope="module")
def propagated() -> Propagation:
    return propagate(read_stablehlo(PROGRAM))


def test_the_path_back_to_the_annotation(propagated: Propagation) -> None:
    lines = explain_value(propagated.provenance, "w2")
    assert lines[0] == "w2: [{model}, {data}]"
    told = [line for line in lines if "dimension 0: model" in line]
    assert "through dot" in told[0]
    assert "factor k of ([i, k], [k, j])->([i, j])" in told[0]
    assert "(mlp.py:12)" in told[0]
    assert any("through tanh" in line and "(mlp.py:11)" in line for line in lines)
    assert any("w1 dimension 1: model by annotation (mlp.py:4)" in line for line in lines)
    assert len(lines) < 12


def test_every_axis_has_a_story_that_ends_at_an_annotation(propagated: Propagation) -> None:
    history = propagated.provenance
    count = 0
    for value, sharding in enumerate(history.shardings):
        for dim, entry in enumerate(sharding.dims):
            for axis in entry.axes:
                story = history.story(value, dim, axis)
                assert story[-1].step == 0, (history.name(value), dim, axis)
                assert str(axis) in story[-1].axes
                steps = [r.step for r in story]
                assert steps == sorted(steps, reverse=True)
                count += 1
    assert count >= 8


def test_the_root_of_an_axis_is_the_annotated_place(propagated: Propagation) -> None:
    history = propagated.provenance
    (w1,), (w2,) = history.find("w1"), history.find("w2")
    (model,) = history.shardings[w2].dims[0].axes
    assert history.root((w2, 0, model)) == (w1, 1, model)
    assert history.root((w1, 1, model)) == (w1, 1, model)
    assert history.annotation_source(w1) == w1


def test_a_constraint_is_where_its_operand_is_annotated() -> None:
    constraint = """  %c = sdy.sharding_constraint %0 <@mesh, [{"data"}, {}]> : tensor<8x32xf32> loc("c"("mlp.py":20:1))
  %1 = stablehlo.tanh %c"""
    history = propagate(read_stablehlo(PROGRAM.replace("  %1 = stablehlo.tanh %0", constraint))).provenance
    (dot,) = history.find("dot.1")
    assert history.graph.origin[history.annotation_source(dot)][0].source == "mlp.py:20"
    assert "(mlp.py:20)" in "\n".join(explain_value(history, "dot.1"))


def test_losing_alternatives_tell_against_what(propagated: Propagation) -> None:
    (y,) = propagated.provenance.find("y")
    (missed, *_) = [a for a in missed_axes(propagated.provenance, y) if a.axes == ("data",)]
    assert (missed.dimension, missed.other, missed.because) == (0, "%tanh.1", "dimension 1 has data")
    text = "\n".join(explain_value(propagated.provenance, "y"))
    assert "lost: dimension 0 without data of %tanh.1 (dot %dot.2): dimension 1 has data" in text


def test_a_closed_dimension_is_named_with_its_line() -> None:
    text = PROGRAM.replace('%w2: tensor<32x6xf32> loc', '%w2: tensor<32x6xf32> {sdy.sharding = '
                           '#sdy.sharding<@mesh, [{}, {}]>} loc')  # fmt: skip
    lines = explain_value(propagate(read_stablehlo(text)).provenance, "w2")
    assert any("without model" in line and "closed by annotation (mlp.py:5)" in line for line in lines)
    assert any("dimension 0: kept whole by annotation (mlp.py:5)" in line for line in lines)


def test_sizes_that_do_not_divide() -> None:
    text = PROGRAM.replace('%b: tensor<8x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"data"}]>}',
                           '%b: tensor<8x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>}')  # fmt: skip
    lines = explain_value(propagate(read_stablehlo(text)).provenance, "w2")
    assert any("without model" in line for line in lines) or "model" in lines[0]


def test_two_axes_of_one_dimension_have_two_stories() -> None:
    text = """
    sdy.mesh @mesh = <["a"=2, "b"=2]>
    func.func @main(%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a", ?}]>} loc("x"),
                    %y: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a", "b"}]>} loc("y")) -> tensor<8xf32> {
      %0 = stablehlo.add %x, %y : tensor<8xf32> loc("z")
      return %0 : tensor<8xf32>
    }"""
    lines = explain_value(propagate(read_stablehlo(text)).provenance, "x")
    assert lines[0] == "x: [{a, b}]"
    assert "x dimension 0: a by annotation" in "\n".join(lines)
    assert any("dimension 0: b from" in line for line in lines)
    assert any("y dimension 0: a, b by annotation" in line for line in lines)


def test_as_json(propagated: Propagation) -> None:
    data = json.loads(json.dumps(provenance_dict(propagated.provenance)))
    assert data["mesh"]["axes"] == {"data": 2, "model": 4}
    values = {v["name"]: v for v in data["values"]}
    (axis,) = values["w2"]["dimensions"][0]["axes"]
    assert axis["axis"] == "model"
    assert axis["annotation"] == {"value": "w1", "dimension": 1, "source": "mlp.py:4"}
    step = data["steps"][axis["step"] - 1]
    assert step["value"] == "w2"
    assert step["source"] == "mlp.py:12"
    assert step["gains"][0]["from"]["dimension"] == 1
    assert values["x"]["dimensions"][0] == {
        "size": 8,
        "axes": [{"axis": "data", "step": 0, "annotation": {"value": "x", "dimension": 0, "source": "mlp.py:3"}}],
        "closed_by_annotation": True,
    }
    assert any(lost["of"] == "%tanh.1" and lost["axes"] == ["data"] for v in data["values"] for lost in v["lost"])


def test_globs_name_each_value_once(propagated: Propagation) -> None:
    known = propagated.provenance
    everything = known.matching("*")
    assert {"x", "w1", "w2"} <= set(everything)
    assert len({known.find(name) for name in everything}) == len(everything)
    assert known.matching("%tanh*") == ["tanh.1"]
    assert known.matching("w?") == ["w1", "w2"]
    assert known.matching("w3*") == ["w3*"]


def test_unknown_names_are_near_ones(propagated: Propagation) -> None:
    with pytest.raises(AnnotationError, match="no value is named 'w3'") as caught:
        explain_value(propagated.provenance, "w3")
    assert "w1" in str(caught.value)


def test_stories_cross_the_border_of_a_manual_computation() -> None:
    text = """
    sdy.mesh @mesh = <["a"=2, "b"=2]>
    func.func @main(%x: tensor<8x4xf32> loc("x")) -> tensor<8x4xf32> {
      %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"a", ?}, {?}]>] out_shardings=[<@mesh, [{"a", ?}, {?}]>]
          manual_axes={"a"} (%u: tensor<4x4xf32>) {
        %1 = stablehlo.tanh %u {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{?}, {"b"}]>]>} : tensor<4x4xf32>
        sdy.return %1 : tensor<4x4xf32>
      } : (tensor<8x4xf32>) -> tensor<8x4xf32>
      return %0 : tensor<8x4xf32>
    }"""
    history = propagate(read_stablehlo(text)).provenance
    count = 0
    for value, sharding in enumerate(history.shardings):
        for dim, entry in enumerate(sharding.dims):
            for axis in entry.axes:
                story = history.story(value, dim, axis)
                assert story[-1].step == 0, (history.name(value), dim, axis)
                count += 1
    assert count >= 6
    assert any("dimension 1: b by annotation" in line for line in explain_value(history, "x"))
