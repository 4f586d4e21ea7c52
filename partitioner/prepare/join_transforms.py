"""Fourier transforms over one dimension after the other become one over all of them, if these are whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation, rebuild_computations, users_of
from shardc.hlo.ir.sharding import Sharding

__all__ = ["JoinTransforms"]


@dataclass(frozen=True, slots=True)
class JoinTransforms:
    """Chains of transforms and transposes over the last dimensions, each one transformed once, where every device has
    all of them: the inverse of `SplitTransforms`."""

    name: str = "join-transforms"
    why: str = "one transform over several dimensions goes through memory less often than one for each"

    def run(self, module: Module) -> Module:
        return rebuild_computations(module, _join_all)


def _join_all(computation: Computation, called: Mapping[Computation, Computation]) -> Computation:
    if sum(i.opcode == "fft" for i in computation) < 2:
        return rebuild_computation(computation, None, called)
    users = users_of(computation)
    chains, inside = dict[Instruction, _TransformChain](), set[Instruction]()
    for end in reversed(computation.instructions):
        if end.opcode in ("fft", "transpose") and end not in inside:
            longest = _longest(end, users)
            if longest is not None:
                chains[end] = longest
                inside.update(longest.steps)

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old not in chains:
            return None
        (start,) = operands
        for _ in chains[old].steps[1:]:
            (start,) = start.operands
        return old.replace(opcode="fft", operands=(start,), attrs=chains[old].attrs())

    return rebuild_computation(computation, change if chains else None, called)


@dataclass(frozen=True, slots=True)
class _TransformChain:
    """Transposes and transforms over one dimension, the last one first: the steps, and the kinds, dimensions of the
    result, and lengths of the transforms."""

    steps: tuple[Instruction, ...] = ()
    kinds: tuple[str, ...] = ()
    dims: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()

    def after(self, step: Instruction, last: int) -> _TransformChain:
        """The chain with a step before it, whose last dimension is the dimension ``last`` of the result."""
        steps = (*self.steps, step)
        if step.opcode == "transpose":
            return replace(self, steps=steps)
        kind, (length,) = step.attrs["fft_type"], step.attrs["fft_length"]
        return _TransformChain(steps, (*self.kinds, kind), (*self.dims, last), (*self.lengths, length))

    @property
    def is_one_transform(self) -> bool:
        """Whether one transform over the last dimensions does the same. A real one begins with the last dimension, and
        its inverse ends with it."""
        rank, kinds = self.steps[0].shape.rank, self.kinds
        if len(kinds) < 2 or sorted(self.dims) != list(range(rank - len(kinds), rank)):
            return False
        forward, inverse = {*kinds[:-1]} | {kinds[-1].lstrip("R")}, {*kinds[1:]} | {kinds[0].replace("IR", "I")}
        if forward == {"FFT"}:
            return kinds[-1] == "FFT" or self.dims[-1] == rank - 1
        return inverse == {"IFFT"} and (kinds[0] == "IFFT" or self.dims[0] == rank - 1)

    def attrs(self) -> dict[str, object]:
        """The attributes of this one transform."""
        lengths = dict(zip(self.dims, self.lengths, strict=True))
        kind = self.kinds[-1] if self.kinds[0] == "FFT" else self.kinds[0]
        return {"fft_type": kind, "fft_length": tuple(lengths[d] for d in sorted(lengths))}


def _longest(end: Instruction, users: Mapping[Instruction, list[Instruction]]) -> _TransformChain | None:
    """The longest chain up to ``end`` that is one transform of an array with the same layout."""
    place = list(range(end.shape.rank))  # the dimension of ``end`` for each dimension of the present value
    chain, best, step = _TransformChain(), None, end
    while _is_step(step, chain.dims, place[-1]) and (step is end or users[step] == [chain.steps[-1]]):
        chain = chain.after(step, place[-1])
        if step.opcode == "transpose":
            place = [d for _, d in sorted(zip(step.attrs["dimensions"], place, strict=True))]
        (step,) = step.operands
        if not _lies_like(step, end, place) or any(_axes(end, d) for d in chain.dims):
            break
        if place == sorted(place) and chain.is_one_transform:
            best = chain
    return best


def _is_step(op: Instruction, done: Sequence[int], last: int) -> bool:
    """Whether ``op`` may come before a chain, whose ``done`` dimensions are transformed already."""
    return op.opcode == "transpose" or (op.opcode == "fft" and len(op.attrs["fft_length"]) == 1 and last not in done)


def _axes(op: Instruction, dim: int) -> object:
    assert isinstance(op.sharding, Sharding)
    return op.sharding.dims[dim].axes


def _lies_like(x: Instruction, end: Instruction, place: Sequence[int]) -> bool:
    """Whether both have one layout, where ``place`` has the dimension of ``end`` for each of ``x``."""
    if not isinstance(x.sharding, Sharding) or not isinstance(end.sharding, Sharding) or end.sharding.manual:
        return False
    unreduced = x.sharding.unreduced or end.sharding.unreduced
    return not unreduced and all(_axes(x, d) == _axes(end, p) for d, p in enumerate(place))
