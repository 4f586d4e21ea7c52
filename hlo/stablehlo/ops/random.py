"""Random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.stablehlo.converter import Handler, MlirOp

__all__ = ["HANDLERS"]

_ALGORITHMS = {"DEFAULT": "rng_default", "THREE_FRY": "rng_three_fry", "PHILOX": "rng_philox"}


def _rng_bit_generator(op: MlirOp) -> Sequence[Instruction]:
    algorithm = _ALGORITHMS.get(op.get("rng_algorithm"))
    if algorithm is None:
        raise op.unsupported(f"algorithm {op.get('rng_algorithm')}")
    return op.emit_results("rng-bit-generator", *op.operands, algorithm=algorithm)


def _rng(op: MlirOp) -> Sequence[Instruction]:
    return op.emit_result("rng", *op.operands[:2], distribution=f"rng_{op.get('rng_distribution').lower()}")


HANDLERS: Mapping[str, Handler] = {
    "stablehlo.rng_bit_generator": _rng_bit_generator,
    "stablehlo.rng": _rng,
}
