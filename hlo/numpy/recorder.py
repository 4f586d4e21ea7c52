"""`Trace` records instructions with the user's source line, constants, and sharding constraints, in nested scopes."""

from __future__ import annotations

import functools
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from shardc.hlo.errors import InputError, Location
from shardc.hlo.ir.build import make_instruction
from shardc.hlo.ir.ir import Computation, Instruction, Metadata, topological
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.types import Shape
from shardc.hlo.masked_arrays import refuse_masked

__all__ = ["SCIPY_FOLDER", "Protocols", "Scope", "Trace", "current_trace", "is_users", "user_line"]

#: The function that is being traced: for what makes arrays without being given one.
_CURRENT: ContextVar[Trace | None] = ContextVar("shardc_trace", default=None)

#: Frames of these folders are not the user's: this package, NumPy's and SciPy's, and Python's own library.
_PACKAGE = str(Path(__file__).parents[2])
_OURS = (_PACKAGE + "/", str(Path(np.__file__).parent) + "/", "<frozen", "<__array_function__")
SCIPY_FOLDER = "-packages/scipy/"
_LIBRARY = sysconfig.get_path("stdlib") + "/"


@dataclass(frozen=True, slots=True)
class Protocols:
    """What to do when NumPy passes a call on: ``function(recorder, func, args, kwargs)`` and
    ``ufunc(recorder, ufunc, method, inputs, kwargs)``; ``namespace(recorder)``: the one that arrays name as theirs."""

    function: Callable[[Trace, Any, tuple[Any, ...], Mapping[str, Any]], Any]
    ufunc: Callable[[Trace, Any, str, tuple[Any, ...], Mapping[str, Any]], Any]
    namespace: Callable[[Trace], object]


@dataclass(eq=False, slots=True)
class Scope:
    """The instructions of a function, or of the body of a loop or branch inside of ``outer``.

    ``captured`` are values of the scope around it by the parameters that stand for them here. ``before`` is what an
    earlier run of the function recorded here: an instruction that is the same once more is taken from there.
    """

    outer: Scope | None = None
    before: Sequence[Instruction] = ()
    instructions: list[Instruction] = field(default_factory=list)
    constants: dict[tuple[object, ...], Instruction] = field(default_factory=dict)
    captured: dict[Instruction, Instruction] = field(default_factory=dict)
    own: set[Instruction] = field(default_factory=set)

    def add(self, made: Instruction) -> Instruction:
        self.instructions.append(made)
        self.own.add(made)
        return made

    def repeated(
        self, opcode: str, operands: tuple[Instruction, ...], shape: Shape | None, attrs: Mapping[str, Any]
    ) -> Instruction | None:
        """The instruction that the earlier run recorded next, where it is this one."""
        place = len(self.instructions)
        if place >= len(self.before):
            return None
        found = self.before[place]
        same = found.opcode == opcode and found.operands == operands and found.attrs == attrs
        return found if same and shape in (None, found.shape) else None

    def here(self, value: Instruction) -> Instruction | None:
        """``value``, or what stands for it in this scope; None for a value of a scope that has ended."""
        if value in self.own:
            return value
        if value not in self.captured:
            outside = None if self.outer is None else self.outer.here(value)
            if outside is None:
                return None
            inside = outside.replace() if outside.opcode == "constant" else _stand_in(outside)
            self.captured[value] = self.add(inside)
        return self.captured[value]


def _stand_in(value: Instruction) -> Instruction:
    return make_instruction("parameter", shape=value.shape, name=value.name, metadata=value.metadata, index=0)


class _NumPyCalls:
    """Names of the NumPy functions that run, the outermost first; a context manager that ends the innermost one."""

    __slots__ = ("metadata", "names")

    def __init__(self) -> None:
        self.names: list[str] = []
        #: That of the user's call, once it was asked for.
        self.metadata: Metadata | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.names.pop()
        if not self.names:
            self.metadata = None


@dataclass(slots=True)
class Trace:
    """One trace. ``open`` is false once the function has returned: its values are then of no use any more."""

    name: str
    protocols: Protocols
    scope: Scope = field(default_factory=Scope)
    constraints: list[tuple[Instruction, Any, str]] = field(default_factory=list)
    open: bool = True
    #: Python's floats that met traced values, with their lines, before an element type rounds them.
    numbers: list[tuple[float, Metadata | None]] = field(default_factory=list)
    #: Plans of indices by what they index and how: loops ask for the same ones over and over.
    plans: dict[tuple[object, ...], Any] = field(default_factory=dict)
    _names: dict[str, int] = field(default_factory=dict)
    _places: dict[tuple[str, int, str], Metadata] = field(default_factory=dict)
    _calls: _NumPyCalls = field(default_factory=_NumPyCalls)

    def emit(
        self, opcode: str, operands: Iterable[Instruction] = (), shape: Shape | None = None, **attrs: Any
    ) -> Instruction:
        """Append an instruction; its shape is inferred unless given. Metadata is the user's line."""
        if not self.open:
            raise self.returned()
        scope = self.scope
        own = scope.own
        given = tuple([o if o in own else self._here(o) for o in operands])
        made = scope.repeated(opcode, given, shape, attrs)
        if made is None:
            name = self.unique_name(opcode)
            made = make_instruction(opcode, *given, shape=shape, name=name, metadata=self.metadata(), **attrs)
        return scope.add(made)

    def returned(self) -> InputError:
        """What a value means that is used too late: it may stand for an instruction of a later run, which shares it."""
        return InputError(
            f"a value traced in {self.name} is used after the function returned",
            where=str(self.place()),
            fix="return it from the function; nothing traced may be kept in a global or an attribute",
        )

    def _here(self, value: Instruction) -> Instruction:
        found = self.scope.here(value)
        if found is None:
            raise InputError(
                "a value that was traced inside of a loop's or branch's function is used outside of it",
                where=str(self.place()),
                fix="return it from that function; nothing traced there may be kept in a list or a global",
            )
        return found

    def constant(self, value: Any) -> Instruction:
        """A constant of exactly this NumPy value; small ones are made once."""
        refuse_masked(value, lambda: str(self.place()))
        array = np.asarray(value)
        if array.size > 1:
            return self.emit("constant", literal=Literal(np.array(array, order="C", copy=True)))
        known = self.scope.constants
        key = (array.dtype, array.shape, array.tobytes())
        if key not in known:
            known[key] = self.emit("constant", literal=Literal(np.array(array, order="C", copy=True)))
        return known[key]

    def parameter(self, index: int, shape: Shape, name: str) -> Instruction:
        made = self.scope.repeated("parameter", (), shape, {"index": index})
        if made is None:
            unique = self.unique_name("arg")
            made = make_instruction("parameter", shape=shape, name=unique, metadata=Metadata(name), index=index)
        return self.scope.add(made)

    def build(self, root: Instruction) -> Computation:
        """What the root needs, and all parameters, in the order of the function."""
        needed = {*topological([root])}
        kept = [i for i in self.scope.instructions if i in needed or i.opcode == "parameter"]
        return Computation(self.name, kept, root)

    @contextmanager
    def inner(self, scope: Scope | None = None) -> Iterator[Scope]:
        """Inside, what is recorded belongs to a new scope within the present one, or to one that was there before."""
        outer = self.scope
        self.scope = scope or Scope(outer)
        try:
            yield self.scope
        finally:
            self.scope = outer

    def unique_name(self, base: str) -> str:
        number = self._names.get(base, 0) + 1
        self._names[base] = number
        return f"{base}.{number}"

    def call(self, name: str) -> AbstractContextManager[None]:
        """Inside, instructions belong to the NumPy function ``name``, where the user called it."""
        self._calls.names.append(name)
        return self._calls

    @property
    def called(self) -> str:
        """The NumPy function that the user called, the outermost one."""
        return self._calls.names[0] if self._calls.names else ""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inside, the function runs whose trace this is."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    def place(self) -> Location:
        """The user's line: the innermost frame that is neither ours nor NumPy's."""
        file, line = user_line()
        return Location(file, line)

    def metadata(self) -> Metadata:
        calls = self._calls
        if not calls.names:
            return self._metadata()
        if calls.metadata is None:
            calls.metadata = self._metadata()
        return calls.metadata

    def _metadata(self) -> Metadata:
        file, line = user_line()
        key = (file, line, self.called)
        if key not in self._places:
            op_name = f"{self.name}/{self.called}" if self.called else self.name
            self._places[key] = Metadata(op_name, source_file=file, source_line=line)
        return self._places[key]


def current_trace() -> Trace | None:
    """The trace of the function that is being traced here, the innermost one; None outside of one."""
    return _CURRENT.get()


@functools.cache
def is_users(file: str) -> bool:
    """Whether ``file`` belongs to a stack frame of the user's code."""
    in_library = file.startswith(_LIBRARY) and "-packages" not in file
    return not (file.startswith(_OURS) or in_library or SCIPY_FOLDER in file)


def user_line(frame: Any = None) -> tuple[str, int]:
    """File and line of the innermost frame that is the user's."""
    frame = frame or sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users(file):
            return file, frame.f_lineno
        frame = frame.f_back
    return "", 0
