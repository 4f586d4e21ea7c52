"""The fewest annotations: propagation from them finds the layouts that were asked for, and none can be left out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P
from shardc.analysis.auto.fewest_annotations import NeededAnnotations, fewest_annotations
from shardc.analysis.explain.candidates import AnnotatableNames
from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation, rebuild_computations
from shardc.partitioner.program import SourceProgram
from shardc.sharding.propagation.export import PropagationOutcome

MESH = Mesh({"data": 2, "model": 4})


def without_shardings(module: Module) -> Module:
    """The program as somebody wrote it who annotated nothing."""

    def strip(c: Computation, called: Any) -> Computation:
        def bare(i: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            return None if i.sharding is None else i.replace(operands=operands, sharding=None)

        return rebuild_computation(c, bare, called)

    return rebuild_computations(module, strip).with_(mesh=module.mesh)


def needed(wanted: SourceProgram) -> tuple[NeededAnnotations, dict[int, str], PropagationOutcome]:
    """The annotations for the layouts that propagation finds for ``wanted``, in the program without any."""
    full = wanted.propagate()
    bare = replace(wanted, module=without_shardings(full.program.module).with_(mesh=full.module.mesh), content="")
    found = bare.propagate()
    assert full.outcome is not None
    assert found.outcome is not None
    assert found.provenance is not None
    names = AnnotatableNames(found.provenance, bare.module)
    named = {v: n for v in range(len(found.outcome.graph.origin)) if (n := names.of(v)) is not None}
    weights = [float(math.prod(d)) for d in found.outcome.graph.dims]
    made = fewest_annotations(found.outcome, full.outcome.shardings, weights, named)
    check(bare, full, made, named)
    return made, named, found.outcome


def check(bare: SourceProgram, full: Any, made: NeededAnnotations, named: dict[int, str]) -> None:
    """The annotations, given by name, lead to the layouts; none of them can be left out."""
    specs = [{named[v]: g.sharding for v in g.values} for g in made.groups]
    assert layouts(bare.annotate({k: s for g in specs for k, s in g.items()})) == layouts(full.program)
    for left_out in specs:
        some = {k: s for g in specs if g is not left_out for k, s in g.items()}
        assert layouts(bare.annotate(some)) != layouts(full.program)


def layouts(program: SourceProgram) -> list[object]:
    outcome = program.propagate().outcome
    assert outcome is not None
    pairs = zip(outcome.shardings, outcome.graph.dims, strict=True)
    return [(tuple(d.axes for d in s.dims), s.unreduced) for s, dims in pairs if dims]


def test_a_training_step_needs_one_annotation_for_each_way_of_splitting() -> None:
    """Of the demo's 142 arguments and results four have to be annotated, equal layers by one line."""
    demo = shardc.load(Path(shardc.__file__).parent / "demo" / "step.hlo")
    made, named, outcome = needed(demo)
    assert not made.different
    said = [named[g.values[0]] for g in made.groups]
    assert sorted(said[:2]) == ["state['params']['embed']", "state['params']['layers'][0]['w1']"]
    assert len(said) == 4
    assert all(g.is_argument for g in made.groups)
    assert len(made.groups[0].values) == 2
    assert outcome.graph.annotated.count(True) == 0


def layer(x: Any, w: Any, v: Any) -> Any:
    return np.tanh(x @ w) @ v


def array(*dims: int) -> Any:
    return np.ones(dims, np.float32)


@pytest.mark.parametrize(
    ("annotations", "groups"),
    [
        ({"x": P("data")}, 1),
        ({"x": P("data"), "w": P(None, "model")}, 2),
        ({"x": P("data"), "w": P(None, "model"), "v": P("model", None)}, 2),
        ({"x": P("data", "model"), "w": P("model", None), "result": P("data", None)}, None),
    ],
)
def test_what_follows_is_not_annotated(annotations: dict[str, Any], groups: int | None) -> None:
    program = shardc.trace(layer, array(8, 16), array(16, 32), array(32, 16))
    made, _, _ = needed(program.annotate(annotations, mesh=MESH))
    assert not made.different
    assert groups is None or len(made.groups) == groups


def rows_and_columns(x: Any) -> Any:
    return np.sort(x, 1), np.sort(x, 0)


def test_two_annotations_hold_each_other() -> None:
    """Either result alone would split the argument, and with it the other result: no single annotation is better."""
    program = shardc.trace(rows_and_columns, array(64, 64))
    rows, columns = (n or f"out{k}" for k, n in enumerate(program.module.result_names or ("", "")))
    made, _, _ = needed(program.annotate({"x": P(None, None), rows: P("data"), columns: P(None, "data")}, mesh=MESH))
    assert not made.different and len(made.groups) in (2, 3)


def fully_split(x: Any, w: Any) -> Any:
    """Weights split over the axis of the batch: propagation would split the rows of the product by it."""
    for n in range(3):
        x = np.tanh(x @ w[n])
    return x.sum()


def test_operations_are_annotated_where_arguments_do_not_suffice() -> None:
    """The values inside lie otherwise than arguments say; the lines of a loop are written once."""
    program: Callable[..., Any] = fully_split
    traced = shardc.trace(program, array(64, 32), array(3, 32, 32))
    inside = [i.name for i in traced.module.entry if i.opcode == "dot"]
    wanted = {"x": P("data"), "w": P(None, None, "data"), **dict.fromkeys(inside, P("data", None))}
    made, named, _ = needed(traced.annotate(wanted, mesh=Mesh({"data": 4})))
    assert not made.different
    assert [g.is_argument for g in made.groups].count(False) <= 1, [named[g.values[0]] for g in made.groups]
