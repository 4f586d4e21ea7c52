"""Shardy's executable cases: a sharded function, partitioned and run on virtual devices, equals the sequential one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.ir.build import make_module
from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation, topological
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.types import Shape, tuple_shape
from shardc.hlo.stablehlo.reader import read_stablehlo
from shardc.hlo.verify import verify
from shardc.launcher.arrays.gather import gather
from shardc.partitioner.equivalence import agree, gather_array, gather_results
from shardc.stages.stages import Program

Array = NDArray[Any]
GRID = "interpreter.run_parallel"
_PARTS = re.compile(r"^//--- .*$", re.MULTILINE)
#: A check in its own form, which only its dialect's reader knows.
_CHECK = re.compile(r"^\s*(check\.\w+)[ (]+(%[^)\n:]*?)\)? : \(?(tensor<\w+>).*$", re.MULTILINE)
_FUNCTION = re.compile(r"^func\.func (?:public |private )?@([\w.$-]+)", re.MULTILINE)


def test_case(executable_case: Path) -> None:
    """Every run of a program on all devices gives what the checks of ``@main`` expect, floats within our bound."""
    pytest.importorskip("jaxlib")
    text = executable_case.read_text(encoding="utf-8")
    _, definitions, main = _PARTS.split(_CHECK.sub(r'"\1"(\2) : (\3, \3) -> ()', text))
    meshes, functions = _split(definitions)
    module = read_stablehlo("\n".join([meshes, *functions.values(), main]), executable_case.name)
    grids = [i for i in module.entry if i.attrs.get("custom_call_target") == GRID]
    assert grids
    values = iter(evaluate(_ending_in(module, [o for g in grids for o in g.operands]), []))
    given = {g: [next(values) for _ in g.operands] for g in grids}
    results = {g: _run(_function(meshes, functions, _name(g), executable_case.name), given[g]) for g in grids}

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old not in results:
            return None
        made = [_constant(s, v) for s, v in zip(old.shape.leaves(), results[old], strict=True)]
        return Instruction("tuple", old.shape, made) if old.shape.is_tuple else made[0]

    ran = make_module(module.name, rebuild_computation(module.entry, change))
    checks = [i for i in ran.entry if i.attrs.get("custom_call_target") == "check.expect_eq"]
    assert checks
    compared = iter(evaluate(_ending_in(ran, [o for c in checks for o in c.operands]), []))
    for one, other in zip(compared, compared, strict=True):
        assert agree(one, other)


def _split(text: str) -> tuple[str, dict[str, str]]:
    """What stands before the first function, and the functions by name."""
    starts = [m.start() for m in _FUNCTION.finditer(text)] + [len(text)]
    functions = {}
    for start, end in pairwise(starts):
        name = _FUNCTION.match(text, start)
        assert name
        functions[name[1]] = text[start:end]
    return text[: starts[0]], functions


def _name(grid: Instruction) -> str:
    """The one function that all devices run; the reader numbers names."""
    names = {re.sub(r"\.\d+$", "", c.name) for c in grid.attrs["called_computations"]}
    assert len(names) == 1
    return names.pop()


def _function(meshes: str, functions: dict[str, str], name: str, file: str) -> Module:
    """The module whose entry is a function; the others stay, for it may call them."""
    texts = [re.sub(rf"@{re.escape(name)}\b", "@main", t) for t in functions.values()]
    return read_stablehlo("\n".join([meshes, *texts]), f"{file}:{name}")


def _run(module: Module, blocks: Sequence[Array]) -> list[Array]:
    """The results of each device in turn, from each device's blocks in turn; evaluated and compiled alike."""
    partitioned = Program(module).propagate().partition()
    local = partitioned.module
    verify(local)
    count = len(local.parameters)
    devices = [list(blocks[d * count : (d + 1) * count]) for d in range(local.num_partitions)]
    columns = zip(*devices, local.parameters, local.attrs["global_parameters"], strict=True)
    whole = [gather_array(c[:-2], c[-2].leaf_shardings()[0], c[-1].dims) for c in columns]
    evaluated = evaluate_spmd(local, devices)
    compiled = partitioned.compile("cpu")(*whole)
    for value, reference in zip(
        compiled if isinstance(compiled, tuple | list) else [compiled], gather_results(local, evaluated), strict=True
    ):
        assert agree(np.asarray(gather(value)), reference)
    return [x for device in evaluated for x in device]


def _ending_in(module: Module, values: Sequence[Instruction]) -> Module:
    """The program that computes ``values``."""
    root = Instruction("tuple", tuple_shape(*(v.shape for v in values)), values)
    return make_module("inputs", Computation("inputs", topological([root]), root))


def _constant(shape: Shape, value: Array) -> Instruction:
    return Instruction("constant", shape, attrs={"literal": Literal(value)})
