"""The host's part of a program for GPUs as plain data: what is launched, copied and waited for, in order.

The same tree as `Lowered.steps`, with every buffer's place resolved. The launcher walks it; a file holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shardc.collectives.call.call import BufferRef
from shardc.native.gpu.product import Product
from shardc.native.gpu.runtime import Image, LaunchShape

__all__ = [
    "AwaitCollective",
    "CheckStep",
    "ChoiceStep",
    "CopyStep",
    "FillStep",
    "GpuProgram",
    "GpuStep",
    "HostStep",
    "LaunchStep",
    "LeafStep",
    "ProductStep",
    "RepeatStep",
    "StartCollective",
    "leaf_steps",
]


@dataclass(frozen=True, slots=True)
class LaunchStep:
    """A kernel on arrays at ``places``; ``name`` is the instruction's, for messages and profiles."""

    symbol: str
    shape: LaunchShape
    places: tuple[BufferRef, ...]
    name: str = ""


@dataclass(frozen=True, slots=True)
class FillStep:
    """Set every byte of ``place`` to ``byte``."""

    place: BufferRef
    byte: int


@dataclass(frozen=True, slots=True)
class CopyStep:
    """``target`` becomes ``source``."""

    source: BufferRef
    target: BufferRef


@dataclass(frozen=True, slots=True)
class ProductStep:
    """A product by cuBLASLt on arrays at ``a``, ``b``, ``bias`` and ``d``. ``workspace`` is memory of the arena for the
    library."""

    product: Product
    a: BufferRef
    b: BufferRef
    bias: BufferRef | None
    d: BufferRef
    workspace: BufferRef
    name: str = ""


@dataclass(frozen=True, slots=True)
class HostStep:
    """An instruction that has no GPU code: its operands go to the host, the CPU's kernel ``symbol`` runs (an object of
    `GpuProgram.host_objects`), its results come back."""

    symbol: str
    operands: tuple[BufferRef, ...]
    results: tuple[BufferRef, ...]
    name: str = ""


@dataclass(frozen=True, slots=True)
class StartCollective:
    """Collective ``index`` of the executable; asynchronous ones are done at their `AwaitCollective`."""

    index: int


@dataclass(frozen=True, slots=True)
class AwaitCollective:
    """Where collective ``index``, which was started before, must be done."""

    index: int


@dataclass(frozen=True, slots=True)
class CheckStep:
    """The run fails when the byte at ``predicate`` is 0; ``index`` counts `Executable.checks`."""

    index: int
    predicate: BufferRef


@dataclass(frozen=True, slots=True)
class RepeatStep:
    """``while predicate``: ``condition``, read ``predicate``, leave when it is 0, ``body``. ``trips``: how often the
    body runs where that is known, so that nobody has to look; None otherwise."""

    condition: tuple[GpuStep, ...]
    predicate: BufferRef
    body: tuple[GpuStep, ...]
    trips: int | None = None


@dataclass(frozen=True, slots=True)
class ChoiceStep:
    """One of ``branches`` by ``selector``: a pred (``logical``; not 0 takes branch 0) or an s32 (out of range: the
    last)."""

    selector: BufferRef
    logical: bool
    branches: tuple[tuple[GpuStep, ...], ...]


LeafStep = LaunchStep | FillStep | CopyStep | ProductStep | HostStep | StartCollective | AwaitCollective | CheckStep
GpuStep = LeafStep | RepeatStep | ChoiceStep


@dataclass(frozen=True, slots=True)
class GpuProgram:
    """``target`` is the text of a `GpuTarget`. ``images`` are the kernels' code; ``ptx`` has by image the text that a
    cubin was assembled from (empty: the image is the text itself, or no PTX).

    ``host_objects`` are native objects with the kernels of `HostStep`: ``void symbol(ptr* operands, ptr* results,
    i32 device)``, made, as the objects of an emulation, for the processor ``host`` (its triple and name; empty where
    nothing runs on the host). Every collective operand and result, and scratch memory, lies in the places of
    `Executable`; its arena needs no header here, but keeps it.

    ``sites`` of a program compiled for profiling are by leaf step (`leaf_steps`) numbers of sites of
    `Executable.profile`, -1 for what is not timed by itself.
    """

    target: str
    images: tuple[Image, ...]
    steps: tuple[GpuStep, ...]
    ptx: tuple[bytes, ...] = ()
    host_objects: tuple[bytes, ...] = ()
    host: str = ""
    sites: tuple[int, ...] = ()


def leaf_steps(steps: Iterable[GpuStep]) -> Iterator[LeafStep]:
    """All steps that do something themselves, in program order, loop bodies and branches once."""
    for step in steps:
        if isinstance(step, RepeatStep):
            yield from leaf_steps(step.condition)
            yield from leaf_steps(step.body)
        elif isinstance(step, ChoiceStep):
            for branch in step.branches:
                yield from leaf_steps(branch)
        else:
            yield step
