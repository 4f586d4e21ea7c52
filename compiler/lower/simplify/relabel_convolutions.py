"""Relabel convolutions: they read operands, and write results, in the order in which these lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation, users_of
from shardc.hlo.ir.make import make, map_computations
from shardc.hlo.ir.opset import ConvDims, Window

__all__ = ["RelabelConvolutions"]


@dataclass(frozen=True, slots=True)
class RelabelConvolutions:
    """Transposes that only a convolution reads, or that read only it, become its labels; so do turned kernels."""

    name: str = "relabel-convolutions"
    why: str = "a convolution takes dimensions in any order, so a transposition in front of it is not needed"
    looks_at: ClassVar[frozenset[str]] = frozenset({"convolution"})

    def run(self, module: Module) -> Module:
        return map_computations(module, _relabelled)


def _relabelled(computation: Computation) -> Computation:
    if all(i.opcode != "convolution" for i in computation):
        return computation
    users = users_of(computation)

    def single(i: Instruction) -> bool:
        return len(users[i]) == 1 and i is not computation.root

    readable = {i for i in computation if i.opcode == "reverse" or (i.opcode == "transpose" and single(i))}

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old.opcode == "convolution":
            return _reading(old, operands, [o in readable for o in old.operands])
        if old.opcode == "transpose" and old.operands[0].opcode == "convolution" and single(old.operands[0]):
            return _write_transposed(old, operands[0])
        return None

    return rebuild_computation(computation, change, only={"convolution", "transpose"})


def _reading(old: Instruction, operands: Sequence[Instruction], allowed: Sequence[bool]) -> Instruction | None:
    """The convolution of what its operands are transposes (or the kernel a reversal) of."""
    labels: ConvDims = old.attrs["dim_labels"]
    window: Window = old.attrs.get("window", Window(()))
    left, right = operands
    if allowed[0] and left.opcode == "transpose":
        labels, left = _moved(labels, "lhs", left.attrs["dimensions"].__getitem__), left.operands[0]
    if allowed[1] and right.opcode == "transpose":
        labels, right = _moved(labels, "rhs", right.attrs["dimensions"].__getitem__), right.operands[0]
    elif allowed[1] and right.opcode == "reverse" and set(right.attrs["dimensions"]) <= set(labels.rhs_spatial):
        window = _turned(window, [d in right.attrs["dimensions"] for d in labels.rhs_spatial])
        right = right.operands[0]
    if left is operands[0] and right is operands[1]:
        return None
    attrs = MappingProxyType({**old.attrs, "dim_labels": labels, "window": window})
    return make("convolution", old.shape, (left, right), old).replace(attrs=attrs)


def _write_transposed(transpose: Instruction, convolution: Instruction) -> Instruction | None:
    """The convolution that writes its result as ``transpose`` orders it."""
    if convolution.opcode != "convolution":
        return None
    labels = _moved(convolution.attrs["dim_labels"], "out", transpose.attrs["dimensions"].index)
    attrs = MappingProxyType({**convolution.attrs, "dim_labels": labels})
    return make("convolution", transpose.shape, convolution.operands, convolution).replace(attrs=attrs)


def _moved(labels: ConvDims, side: str, where: Callable[[int], int]) -> ConvDims:
    """The labels with the dimensions of one side (lhs, rhs or out) where ``where`` says."""
    moved: dict[str, Any] = {}
    for name in ("batch", "feature", "input_feature", "output_feature", "spatial"):
        found = getattr(labels, f"{side}_{name}", None)
        if found is not None:
            moved[f"{side}_{name}"] = tuple(map(where, found)) if name == "spatial" else where(found)
    return replace(labels, **moved)


def _turned(window: Window, back: Sequence[bool]) -> Window:
    sizes = zip(window.dims, back, strict=True)
    return Window(tuple(replace(w, reversal=w.reversal != turned) for w, turned in sizes))
