"""OpenXLA's StableHLO programs, which carry their expected values: evaluated, and compiled for the CPU.

Each `@main` calls `@inputs` and `@expected`, runs one op and compares by a ``check.*`` custom call.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardc.compiler.emit.cpu_executable import build_executable
from shardc.compiler.load.step import run_single
from shardc.hlo.config import Config
from shardc.hlo.evaluate import evaluate, evaluate_computation
from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation
from shardc.hlo.ir.types import Shape
from shardc.hlo.stablehlo.mlir.bindings import Bindings
from shardc.hlo.stablehlo.reader import module_from_mlir
from shardc.hlo.verify import verify
from shardc.native.llvm.target import host_target


def read(path: Path) -> Module:
    pytest.importorskip("jaxlib")
    from jaxlib.mlir import ir

    with Bindings().context():
        module = module_from_mlir(ir.Module.parse(path.read_text(encoding="utf-8")))
    verify(module)
    return module


def with_inputs_as_parameters(module: Module) -> tuple[Module, list[np.ndarray[Any, Any]]]:
    """The calls of ``@inputs`` become parameters, so that nothing of the op can be computed before the program runs."""
    values: list[np.ndarray[Any, Any]] = []

    def parameter(value: np.ndarray[Any, Any], shape: Shape) -> Instruction:
        values.append(value)
        number = len(values) - 1
        return Instruction("parameter", shape, attrs={"index": number}, name=f"input{number}")

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        callee: Computation | None = old.attrs.get("to_apply") if old.opcode == "call" else None
        if callee is None or not callee.name.startswith("inputs"):
            return None
        value = evaluate_computation(callee, [])
        if not isinstance(value, tuple):
            return parameter(value, old.shape)
        return Instruction("tuple", old.shape, map(parameter, value, old.shape.elements), name="inputs")

    entry = rebuild_computation(module.entry, change)
    others = tuple(c for c in module.computations if c is not module.entry)
    return module.with_(computations=(*others, entry), entry=entry, arg_names=()), values


def test_evaluator(stablehlo_case: Path) -> None:
    evaluate(read(stablehlo_case), [])


def test_compiled(compiled_case: Path) -> None:
    module, inputs = with_inputs_as_parameters(read(compiled_case))
    run_single(build_executable(module, Config(), host_target(), fold=False), inputs)
