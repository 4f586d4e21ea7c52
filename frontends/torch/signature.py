"""How the parameters and results of a program belong to a PyTorch module: its state, its arguments, its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardc.compiler.executable import Executable
from shardc.frontends.torch.element_types import as_numpy, as_tensor, numpy_type
from shardc.frontends.torch.structure import leaves_of_call
from shardc.frontends.torch.writes import Writes
from shardc.hlo.errors import InputError
from shardc.hlo.units import kind_text
from shardc.launcher.arrays.array import Array
from shardc.launcher.arrays.layout import ArrayLayout
from shardc.launcher.arrays.make_arrays import array_of
from shardc.launcher.arrays.pieces import Whole
from shardc.launcher.arrays.same_values import SameValues
from shardc.launcher.jobs.job import job_transport
from shardc.launcher.jobs.job_config import job_config

__all__ = [
    "SAME_MODULES", "Input", "ModuleTensor", "Resident", "TorchSignature", "Update", "check_input", "present_tensor",
]  # fmt: skip

#: What to do where the modules of two ranks have other values.
SAME_MODULES = (
    "make the module from one random seed on every rank (torch.manual_seed), or load the same state into it on every "
    "rank"
)


@dataclass(frozen=True, slots=True)
class ModuleTensor:
    """A parameter, a buffer or a constant of the module: its name in ``state_dict`` and the tensor itself."""

    name: str
    tensor: Any


@dataclass(frozen=True, slots=True)
class Input:
    """A leaf of the module's arguments: a tensor of ``dims`` and ``dtype``, or a ``value`` that the program is made
    for, where ``dtype`` is None."""

    name: str
    dims: tuple[int, ...] = ()
    dtype: np.dtype[Any] | None = None
    value: Any = None


@dataclass(frozen=True, slots=True)
class Update:
    """Result ``result`` of the program is the new value of flat argument ``argument``."""

    result: int
    argument: int


@dataclass(frozen=True, slots=True)
class TorchSignature:
    """How flat arguments and results belong to a module.

    The flat arguments are ``states`` followed by the tensors among ``inputs``; ``kept`` are those that the program
    takes, in its order. ``outputs`` has a number of a result, or a value, for each leaf of the module's result.
    ``module`` is what the program was made from, None for an exported program.
    """

    torch: Any
    states: tuple[ModuleTensor, ...]
    inputs: tuple[Input, ...]
    in_spec: Any
    outputs: tuple[tuple[int | None, Any], ...]
    out_spec: Any
    updates: tuple[Update, ...]
    kept: tuple[int, ...]
    module: Any = None

    def state(self, flat: int) -> Any:
        """The tensor of flat argument ``flat``: the one that the module has now, where it has one of that name.

        InputError where that has another shape or element type.
        """
        known = self.states[flat]
        return present_tensor(self.torch, self.module, known.name, known.tensor)

    @property
    def names(self) -> tuple[str, ...]:
        """What the flat arguments are called."""
        return (*(s.name for s in self.states), *(i.name for i in self.inputs if i.dtype is not None))

    def resident(self, executable: Executable) -> Resident:
        """The signature of a compiled program, which keeps the state where the program takes it."""
        layouts = [ArrayLayout.of(a, executable.num_devices) for a in executable.arguments]
        same = SameValues(job_transport(job_config()))
        return Resident(self, dict(zip(self.kept, layouts, strict=True)), Writes(self.torch), same)

    def leaves(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The leaves of a call's arguments; InputError for another structure than the program was made with."""
        given, names = (tuple(args), self._ordered(kwargs)), [i.name for i in self.inputs]
        return leaves_of_call(self.torch, given, self.in_spec, names, 2, "call of a compiled PyTorch module")

    def _ordered(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name in the order in which the module was exported with them."""
        expected = self.in_spec.child(1).context or ()
        return {k: kwargs[k] for k in expected} if set(expected) == set(kwargs) else dict(kwargs)

    def tensors(self, leaves: Sequence[Any]) -> list[Any]:
        """The tensors among the leaves of a call, checked."""
        checked = (check_input(self.torch, leaf, spec) for leaf, spec in zip(leaves, self.inputs, strict=True))
        return [t for t in checked if t is not None]


def present_tensor(torch: Any, module: Any, name: str, known: Any) -> Any:
    """The tensor that ``module`` has now by ``name``; ``known`` where it has none.

    InputError where it has another shape or element type than ``known``.
    """
    owner, _, last = name.rpartition(".")
    try:
        tensor = getattr(module.get_submodule(owner), last)
    except AttributeError:
        return known
    if not isinstance(tensor, torch.Tensor):
        return known
    if (tensor.shape, tensor.dtype) != (known.shape, known.dtype):
        raise InputError(
            f"the module's tensor has another shape or type now: {tensor.dtype}{list(tensor.shape)}, but the "
            f"program takes {known.dtype}{list(known.shape)}",
            where=name,
            fix="make another program from the module",
        )
    return tensor


def check_input(torch: Any, leaf: Any, spec: Input) -> Any:
    """A leaf of a call where it is an array that fits; None for a value that the program was made for."""
    if spec.dtype is None:
        if leaf is not spec.value and leaf != spec.value:
            raise InputError(
                f"the program was made for {spec.value!r}, but {leaf!r} was given",
                where=spec.name,
                fix="make another program for this value",
            )
        return None
    if not hasattr(leaf, "shape"):
        raise InputError(f"{kind_text(leaf)} is not a tensor", where=spec.name)
    dtype = numpy_type(torch, leaf.dtype) if isinstance(leaf, torch.Tensor) else np.asarray(leaf).dtype
    if tuple(leaf.shape) != spec.dims or dtype != spec.dtype:
        raise InputError(
            f"the argument is {dtype}{list(leaf.shape)}, but the program takes {spec.dtype}{list(spec.dims)}",
            where=spec.name,
            fix="make another program for these arguments",
        )
    return leaf


@dataclass(frozen=True, slots=True)
class _Held:
    """Where a tensor of the module's state lies for the program, and the version of the tensor that this is."""

    array: Any
    address: int
    version: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Resident:
    """A signature whose state stays laid out between calls, until somebody writes to the module's tensors."""

    signature: TorchSignature
    layouts: Mapping[int, ArrayLayout]
    writes: Writes
    same: SameValues
    held: dict[int, _Held] = field(default_factory=dict)

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The values of the program's parameters for a call."""
        s = self.signature
        tensors = s.tensors(s.leaves(args, kwargs))
        count = len(s.states)
        names = s.names
        out = []
        first = not self.held
        for flat in s.kept:
            given = tensors[flat - count] if flat >= count else None
            if flat < count:
                out.append(self._state(flat, first))
            else:
                out.append(as_numpy(given, names[flat]) if isinstance(given, s.torch.Tensor) else given)
        self.same.compare("a call of the module's program")
        self.held[-1] = _Held(tensors, 0, (0, 0))
        return out

    def _state(self, flat: int, first: bool) -> Any:
        """The value of a tensor of the module, which the ranks compare where it is the ``first`` one."""
        tensor = self.signature.state(flat)
        held = self.held.get(flat)
        known = None if held is None or not self.writes.counted(tensor) else (held.address, held.version)
        if held is None or known != (tensor.data_ptr(), self.writes.version(tensor)):
            name = self.signature.names[flat]
            data = as_numpy(tensor, name)
            if first or name in self.same.found:
                self.same.add(name, data, SAME_MODULES)
            donated = any(u.argument == flat for u in self.signature.updates)
            array = array_of(self.layouts[flat], Whole(data), copy=True if donated else None)
            held = self.held[flat] = _Held(array, tensor.data_ptr(), self.writes.version(tensor))
        return held.array

    def unflatten(self, results: Sequence[Array]) -> Any:
        """The module's result; what the module changes is written into its tensors."""
        s = self.signature
        tensors = self.held.pop(-1).array
        for update in s.updates:
            self._write(update, results[update.result], tensors)
        leaves = [value if k is None else as_tensor(s.torch, results[k]) for k, value in s.outputs]
        return s.torch.utils._pytree.tree_unflatten(leaves, s.out_spec)

    def _write(self, update: Update, result: Array, tensors: Sequence[Any]) -> None:
        s, flat = self.signature, update.argument
        state = flat < len(s.states)
        tensor = s.state(flat) if state else tensors[flat - len(s.states)]
        with s.torch.no_grad():
            tensor.copy_(as_tensor(s.torch, result))
        if state and flat in self.layouts and result._layout.same_data(self.layouts[flat]):
            self.held[flat] = _Held(result, tensor.data_ptr(), self.writes.version(tensor))
