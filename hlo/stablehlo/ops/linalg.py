"""Factorisations, triangular systems, FFT and batch normalisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.stablehlo.converter import Handler, MlirOp

__all__ = ["HANDLERS"]


def _cholesky(op: MlirOp) -> Sequence[Instruction]:
    return op.emit_result("cholesky", *op.operands, lower=bool(op.get("lower", False)))


def _triangular_solve(op: MlirOp) -> Sequence[Instruction]:
    flags = {name: bool(op.get(name)) for name in ("left_side", "lower", "unit_diagonal")}
    return op.emit_result("triangular-solve", *op.operands, **flags, transpose_a=op.get("transpose_a"))


def _fft(op: MlirOp) -> Sequence[Instruction]:
    return op.emit_result("fft", *op.operands, fft_type=op.get("fft_type"), fft_length=op.ints("fft_length"))


def _batch_norm(opcode: str) -> Handler:
    def handler(op: MlirOp) -> Sequence[Instruction]:
        attrs = {"epsilon": float(op.get("epsilon")), "feature_index": int(op.get("feature_index"))}
        return op.emit_results(opcode, *op.operands, **attrs)

    return handler


HANDLERS: Mapping[str, Handler] = {
    "stablehlo.cholesky": _cholesky,
    "stablehlo.triangular_solve": _triangular_solve,
    "stablehlo.fft": _fft,
    "stablehlo.batch_norm_training": _batch_norm("batch-norm-training"),
    "stablehlo.batch_norm_inference": _batch_norm("batch-norm-inference"),
    "stablehlo.batch_norm_grad": _batch_norm("batch-norm-grad"),
}
