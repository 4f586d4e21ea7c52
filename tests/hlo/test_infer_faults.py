"""Attributes and operands that make no sense are errors of ours in every op, whatever they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from test_infer import CASES, F, value

from shardc.hlo.errors import ShardcError
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.types import Shape, array_shape, token_shape, tuple_shape
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.verify import verify_computation

NUMBERS = (-1, 0, 1, 3, 99, 2**31, 2**63)
SHAPES = (
    array_shape(F),
    array_shape(F, 0),
    array_shape("s8", 3),
    array_shape("pred", 2, 3, 5, 7),
    token_shape(),
    tuple_shape(),
    tuple_shape(array_shape(F, 2)),
)


def variants(found: Any) -> Iterator[Any]:
    """The value with one number changed, or one element gone or twice there."""
    if isinstance(found, bool):
        yield not found
    elif isinstance(found, int):
        yield from NUMBERS
    elif isinstance(found, tuple):
        for k, item in enumerate(found):
            yield from ((*found[:k], v, *found[k + 1 :]) for v in variants(item))
            yield (*found[:k], *found[k + 1 :])
            yield (*found, item)
        yield ()
    elif is_dataclass(found) and not isinstance(found, type | Computation | Mesh):
        for f in (f for f in fields(found) if f.init):
            for v in variants(getattr(found, f.name)):
                try:
                    yield replace(found, **{f.name: v})
                except ShardcError:
                    continue


def mutants(opcode: str, operands: list[Instruction], attrs: dict[str, Any], shape: Shape) -> Iterator[Instruction]:
    whole = Instruction(opcode, shape, tuple(operands), attrs=attrs, name="x")
    yield from (whole.replace(attrs={**attrs, name: v}) for name, found in attrs.items() for v in variants(found))
    yield from (whole.replace(attrs={n: v for n, v in attrs.items() if n != name}) for name in attrs)
    yield from (whole.replace(shape=other) for other in SHAPES)
    for k in range(len(operands)):
        yield whole.replace(operands=(*operands[:k], *operands[k + 1 :]))
        for other in SHAPES:
            changed = value(F).replace(shape=other)
            yield whole.replace(operands=(*operands[:k], changed, *operands[k + 1 :]))


@pytest.mark.parametrize(("opcode", "operands", "attrs", "shape"), CASES, ids=lambda c: c if isinstance(c, str) else "")
def test_faults(opcode: str, operands: list[Instruction], attrs: dict[str, Any], shape: Shape) -> None:
    check(opcode, operands, attrs, shape)


def test_faults_in_texts(conformance: Path) -> None:
    """One instruction of each opcode and set of attributes that XLA's texts have."""
    seen: dict[Any, Instruction] = {}
    for path in sorted((conformance / "hlo").glob("*.hlo")):
        if path.stat().st_size > 20_000:
            continue
        try:
            module = read_hlo(path.read_text(encoding="utf-8"))
        except ShardcError:
            continue
        for i in module.instructions():
            seen.setdefault((i.opcode, *sorted(i.attrs)), i)
    assert len({key[0] for key in seen}) > 100
    for i in (i for i in seen.values() if i.opcode != "parameter"):
        check(i.opcode, [value(F).replace(shape=o.shape) for o in i.operands], dict(i.attrs), i.shape)


def check(opcode: str, operands: list[Instruction], attrs: dict[str, Any], shape: Shape) -> None:
    for i in mutants(opcode, operands, attrs, shape):
        parameters = dict.fromkeys(i.operands)
        try:
            verify_computation(Computation("c", [*parameters, i], i))
        except ShardcError:
            continue
