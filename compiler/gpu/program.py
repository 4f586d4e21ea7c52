"""The host's part of a program for GPUs as plain data: what is launched, copied and waited for, in order.

The same tree as `Lowered.steps`, with every buffer's place resolved. The launcher walks it; a file holds it.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardc.collectives.call import BufferRef
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
    "ProductStep",
    "RepeatStep",
    "StartCollective",
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
    place: BufferRef
    byte: int


@dataclass(frozen=True, slots=True)
class CopyStep:
    source: BufferRef
    target: BufferRef


@dataclass(frozen=True, slots=True)
class ProductStep:
    """``d = epilogue(a @ b + bias)`` by cuBLASLt. Dense row-major arrays: a [batch, m, k] ([batch, k, m] where
    ``transpose_a``), b [batch, k, n] ([batch, n, k] where ``transpose_b``), d [batch, m, n]; bias [n] or none.

    ``dtype`` is that of a and b, ``result`` of d and bias; ``epilogue`` is ``""``, ``"relu"`` or ``"gelu"`` (tanh);
    ``precision`` is ``"highest"`` (f32 as f32) or ``"tf32"``. ``workspace`` is memory of the arena for the library.
    """

    m: int
    n: int
    k: int
    batch: int
    transpose_a: bool
    transpose_b: bool
    dtype: str
    result: str
    precision: str
    epilogue: str
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


GpuStep = (
    LaunchStep
    | FillStep
    | CopyStep
    | ProductStep
    | HostStep
    | StartCollective
    | AwaitCollective
    | CheckStep
    | RepeatStep
    | ChoiceStep
)


@dataclass(frozen=True, slots=True)
class GpuProgram:
    """``images`` are the kernels' code, ``host_objects`` native objects with the kernels of `HostStep`. Every
    collective operand and result, and scratch memory, lies in the places of `Executable`; its arena needs no header
    here, but keeps it."""

    target: str
    images: tuple[Image, ...]
    steps: tuple[GpuStep, ...]
    host_objects: tuple[bytes, ...] = ()
