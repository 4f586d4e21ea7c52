"""Elementwise values beside XLA's own on CPU: overflow, NaN, signs of zero, rounding, division by zero, shifts, widths.

The evaluator is compared here, and compiled code with the evaluator in `test_property`. XLA flushes denormal numbers
to zero on CPU and we do not: none go in, and where we get one zero is as good. `DEVIATIONS` lists what XLA does in
other ways.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from shardc.hlo.errors import ShardcError
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import Builder, make_module
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.types import DTYPES, DType, array_shape
from shardc.hlo.text.printer import print_module
from shardc.hlo.verify import verify
from tests.compiler.property_support import TYPES, difference, special

jax = pytest.importorskip("jax")

Array = np.ndarray[Any, Any]

#: Opcodes that XLA does not compile for CPU; types that it lacks there, and one whose smallest value it flushes.
NOT_IN_XLA = frozenset({"acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh", "stochastic-convert", "map"})
COVERED = tuple(t for t in TYPES if t not in ("f6e2m3fn", "f6e3m2fn", "f8e8m0fnu") and not DTYPES[t].is_complex)
#: One type of each kind in every run, the others with ``--run-full``.
ALWAYS = frozenset({"pred", "s4", "s32", "u8", "f8e4m3fn", "bf16", "f32"})
#: (opcode, types, what to compare instead): XLA reads six bits of exponents, counts the sign's copies in s4,
#: rounds sqrt of f8 twice, overflows inside f16's logistic, and is less accurate here and there.
DEVIATIONS: dict[str, dict[str, Any]] = {
    "power": {"integer": None, "float": 8},
    "popcnt": {"s2": None, "s4": None},
    "sqrt": {"f8e3m4": 1},
    "log-plus-one": {"f64": 64},
    "tanh": {"float": 8},
    "exponential": {"float": 8},
    "exponential-minus-one": {"float": 8},
    "logistic": {"f16": None, "float": 8},
    "atan2": {"float": 8},
    "cbrt": {"float": 8},
}
#: HLO has these for more types than StableHLO, in which XLA is handed the program.
NOT_IN_STABLEHLO = {
    "pred": ("abs", "sign", "real", "imag", "count-leading-zeros", "popcnt", "negate", "subtract"),
    "signed": ("real", "imag"),
    "unsigned": ("abs", "sign", "real", "imag"),
    "float": ("complex",),
}
#: Results are not one of few exact answers.
ROUNDED = frozenset(
    {"atan2", "cbrt", "cosine", "erf", "exponential", "exponential-minus-one", "log", "log-plus-one"}
    | {"logistic", "power", "rsqrt", "sine", "tan", "tanh"}
)


def tolerance(opcode: str, d: DType) -> float | None:
    """Units in the last place; None where XLA is not asked."""
    known = DEVIATIONS.get(opcode, {})
    for key in (d.name, "float" if d.is_float else "integer"):
        if key in known:
            return known[key]  # type: ignore[no-any-return]
    return 4 if opcode in ROUNDED else 0


def values(d: DType) -> Array:
    """Special values without denormal ones."""
    x = special(d)
    if not d.is_float or d.bits <= 8:
        return x
    size = np.abs(x.astype(np.float64))
    return x[~((size > 0) & (size < float(ml_dtypes.finfo(d.numpy).tiny)))]


def attributes(opcode: str, d: DType) -> Iterator[dict[str, Any]]:
    if opcode == "compare":
        kinds: list[dict[str, Any]] = [{}, {"type": "TOTALORDER"}] if d.is_float else [{}]
        yield from ({"direction": way, **kind} for way in ("EQ", "NE", "GE", "GT", "LE", "LT") for kind in kinds)
    elif opcode == "reduce-precision":
        yield from ({"exponent_bits": e, "mantissa_bits": m} for e, m in ((5, 10), (8, 7), (4, 3), (2, 1), (5, 2)))
    elif opcode == "convert":
        # XLA takes 6 of this type for more than any integer has.
        targets = [t for t in COVERED if not (d.name == "f4e2m1fn" and DTYPES[t].is_integer)]
        yield from ({"shape": t} for t in targets)
    elif opcode != "bitcast-convert":
        yield {}


def crossed(d: DType, arity: int) -> list[Array]:
    """All combinations of special values (a slice of them for three operands and for types with many)."""
    x = values(d)
    limit = {1: 1000, 2: 80, 3: 14}[arity]
    few = x if len(x) <= limit else x[np.linspace(0, len(x) - 1, limit).astype(int)]
    rows = np.array(list(itertools.product(range(len(few)), repeat=arity)))
    return [few[rows[:, k]] for k in range(arity)]


class Beside:
    """One program with every opcode that a type has, over 1, 2 and 3 operands."""

    def __init__(self, d: DType) -> None:
        self.d, self.b = d, Builder("main")
        self.arguments: list[Array] = []
        self.operands = {arity: [self.argument(x, d.name) for x in crossed(d, arity)] for arity in (1, 2, 3)}
        dims = self.operands[2][0].shape.dims
        self.predicate = self.argument(np.arange(dims[0]) % 2 == 0, "pred")
        self.results: list[tuple[Instruction, float, str]] = []
        for opcode, row in OPS.items():
            if row.family == "elementwise" and opcode not in NOT_IN_XLA:
                for fields in attributes(opcode, d):
                    self.add(opcode, row.arity or 1, dict(fields))

    def argument(self, x: Array, dtype: str) -> Instruction:
        self.arguments.append(x)
        return self.b.parameter(array_shape(dtype, *x.shape))

    def add(self, opcode: str, arity: int, fields: dict[str, Any]) -> None:
        ulp = tolerance(opcode, self.d)
        if ulp is None or opcode in NOT_IN_STABLEHLO.get(self.d.kind, ()):
            return
        operands = [self.predicate, *self.operands[2]] if opcode == "select" else self.operands[arity]
        label = f"{opcode} {fields}"
        if "shape" in fields:
            fields["shape"] = array_shape(fields["shape"], *operands[0].shape.dims)
        try:
            self.results.append((self.b.add(opcode, *operands, **fields), ulp, label))
        except ShardcError:
            return


def xla(text: str, arguments: list[Array]) -> list[Array]:
    from tests.partitioner.xla_runner import compiled

    with jax.enable_x64(True):
        devices = jax.devices("cpu")[:1]
        executable = compiled(text, devices)
        arrays = [jax.device_put(a, devices[0]) for a in arguments]
        return [np.asarray(r[0]) for r in executable.execute_sharded(arrays).disassemble_into_single_device_arrays()]


@pytest.mark.parametrize("dtype", [t if t in ALWAYS else pytest.param(t, marks=pytest.mark.full) for t in COVERED])
def test_values(dtype: str) -> None:
    program = Beside(DTYPES[dtype])
    module = make_module("m", program.b.build(program.b.add("tuple", *(i for i, _, _ in program.results))))
    verify(module)
    ours, theirs = evaluate(module, program.arguments), xla(print_module(module), program.arguments)
    wrong = []
    for a, b, (i, ulp, label) in zip(ours, theirs, program.results, strict=True):
        found = difference(_flushed(a, b, i.shape.dtype), b, ulp)
        if found:
            wrong.append(f"{label}: {found}")
    assert not wrong, "\n".join(wrong)


def _flushed(ours: Array, theirs: Array, d: DType) -> Array:
    """Our denormal results as what XLA has: zero, or the smallest normal number."""
    if not d.is_float or d.bits <= 8:
        return ours
    tiny = float(ml_dtypes.finfo(d.numpy).tiny)
    a, b = (np.abs(x.astype(np.float64)) for x in (ours, theirs))
    return np.where((a <= tiny) & (b <= tiny), theirs, ours)
