"""Runs several processes of StableHLO's interpreter cases natively: the grid of programs on virtual devices."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.in_process.transport import LocalTransport
from shardc.compiler.emit.cpu_executable import build_executable
from shardc.compiler.load.step import load_step
from shardc.hlo.config import Config
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import Builder, make_module
from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation
from shardc.hlo.ir.lapack import attributes_of
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import Shape
from shardc.launcher.arrays.array import Array
from shardc.launcher.driver.driver import Driver
from shardc.native.llvm.target import host_target

__all__ = ["grids", "parsable", "run_natively"]

GRID = "interpreter.run_parallel"

#: The suite writes what follows a type in StableHLO's own form after the function type, where nothing may stand.
_MISPLACED = re.compile(r'("check\.\w+"\([^)]*\))(?: \{([^{}]*)\})? : (\([^)]*\) -> \(\)) \{([^{}]*)\}')


def parsable(text: str) -> str:
    """The text of a case, with attributes where MLIR's generic form has them."""

    def placed(found: re.Match[str]) -> str:
        call, before, type_, behind = found.groups()
        return f"{call} {{{', '.join(filter(None, (before, behind)))}}} : {type_}"

    return _MISPLACED.sub(placed, text)


def grids(module: Module) -> list[Instruction]:
    """The calls that run several programs."""
    return [i for i in module.entry if i.attrs.get("custom_call_target") == GRID]


def run_natively(module: Module) -> None:
    """Run the case's one grid on virtual devices, then evaluate its checks with what came out."""
    (grid,) = grids(module)
    values = iter(evaluate(_ending_in(module, grid.operands), []))
    inputs = [None if o.shape.is_token else next(values) for o in grid.operands]
    results = iter(_on_devices(grid, inputs))

    def constant(shape: Shape) -> Instruction:
        if shape.is_token:
            return Instruction("after-all", shape)
        return Instruction("constant", shape, attrs={"literal": Literal(next(results))})

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old is not grid:
            return None
        if not old.shape.is_tuple:
            return constant(old.shape)
        return Instruction("tuple", old.shape, map(constant, old.shape.elements))

    evaluate(make_module(module.name, rebuild_computation(module.entry, change)), [])


def _ending_in(module: Module, values: tuple[Instruction, ...]) -> Module:
    b = Builder("inputs")
    seen: dict[Instruction, None] = {}

    def visit(i: Instruction) -> None:
        for o in i.operands:
            visit(o)
        seen[i] = None

    for v in values:
        visit(v)
    b.instructions = list(seen)
    return make_module("inputs", b.build(b.add("tuple", *values)))


def _on_devices(grid: Instruction, inputs: list[Any]) -> list[NDArray[Any]]:
    """The array results of all processes, one after the other."""
    shape = attributes_of(grid)
    programs: tuple[Computation, ...] = grid.attrs["called_computations"][shape["infeed"] :]
    if len(set(programs)) > 1:
        raise UnsupportedError("several programs in one run cannot be compiled: they send each other values")
    program = programs[0]
    count, width = len(programs), len(program.parameters)
    mesh = Mesh({"process": count})
    module = _sharded(program, mesh).with_(replica_count=shape["replicas"], num_partitions=shape["partitions"])
    executable = build_executable(module, Config(), host_target(), fold=False)
    driver = Driver(executable, load_step(executable), LocalTransport(), Config(), array_type=Array)
    columns = [np.stack([inputs[d * width + k] for d in range(count)]) for k in range(width)]
    stacked = [np.asarray(a) for a in driver(columns)]
    return [a[d] for d in range(count) for a in stacked]


def _sharded(program: Computation, mesh: Mesh) -> Module:
    """``program`` with the processes as a leading dimension of every array, split over the mesh."""
    b = Builder("main")
    shapes = [p.shape.plain for p in program.parameters]
    leaves = list(program.root.shape.plain.leaves())

    def sharding(s: Shape) -> Sharding:
        return Sharding.of(mesh, "process", *(None for _ in s.dims))

    given = [b.parameter(s.with_dims((1, *s.dims)), sharding=sharding(s)) for s in shapes]
    local = [b.add("reshape", g, shape=s) for g, s in zip(given, shapes, strict=True)]
    made = b.add("call", *local, to_apply=program)
    parts = [b.add("get-tuple-element", made, index=k) for k in range(len(leaves))] if made.shape.is_tuple else [made]
    own = [b.add("reshape", p, shape=s.with_dims((1, *s.dims))) for p, s in zip(parts, leaves, strict=True)]
    root = b.add("tuple", *own, sharding=tuple(map(sharding, leaves)))
    everywhere = [tuple(s.with_dims((mesh.size, *s.dims)) for s in group) for group in (shapes, leaves)]
    attrs = {"global_parameters": everywhere[0], "global_results": everywhere[1]}
    return make_module("main", b.build(root), mesh=mesh, partitioned=True, attrs=attrs)
