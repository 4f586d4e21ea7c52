"""`Tracer`: what a NumPy function sees in place of its arrays while it is traced.

It behaves as an ndarray does, in-place changes and views included: a view knows its base, reads from it again when
the base has changed since, and writes through it. What would need values (``if x:``, ``float(x)``) is an error that
names the way out.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import Shape
from shardc.hlo.numpy.known import known_elements
from shardc.hlo.numpy.recorder import Trace
from shardc.hlo.numpy.scipy_calls import called_scipy, way_out_of
from shardc.hlo.numpy.strides import Strides
from shardc.hlo.numpy.swaps import Moved

__all__ = ["NP", "TracedView", "Tracer"]

#: NumPy, for calls with traced values: its stubs know arrays only.
NP: Any = np

_REFUSED_ATTRIBUTES: Mapping[str, str] = {
    "flat": "index it, or use x.ravel()",
    "nonzero": "its shape depends on values: use np.where(condition, x, y)",
    "tobytes": "return the array and do this in the caller",
    "tofile": "return the array and do this in the caller",
    "dump": "return the array and do this in the caller",
    "strides": "traced values have no memory layout",
    "data": "traced values have no memory",
    "ctypes": "traced values have no memory",
    "__buffer__": "traced values have no memory",
    "byteswap": "use x.view(np.uint8) and reverse the bytes",
}


#: Steps of the longest Python loop over a traced value.
_STEPS = 1 << 16


class TracedView:
    """How a view belongs to its base: ``read(base)`` gives its value, ``write(base, new)`` the base's new one.
    ``place`` is the part of the base that a basic index chose."""

    __slots__ = ("base", "place", "read", "write")

    def __init__(
        self,
        base: Tracer,
        read: Callable[[Tracer], Tracer],
        write: Callable[[Tracer, Tracer], Tracer] | None,
        place: Any = None,
    ) -> None:
        self.base, self.read, self.write, self.place = base, read, write, place


class Tracer:
    """A traced array. ``weak`` is the Python type (int, float, complex) of a value that came as a Python scalar.

    Operators and NumPy functions on it record instructions. ``instruction`` is the one that makes its present value.
    """

    __slots__ = ("_instruction", "_layout", "_moved", "_scope", "_version", "_view", "recorder", "weak")
    __array_priority__ = 1000.0

    def __init__(self, recorder: Trace, instruction: Instruction, weak: type | None = None) -> None:
        self.recorder = recorder
        self.weak = weak
        self._instruction = instruction
        self._scope = recorder.scope
        self._version = 0
        self._view: TracedView | None = None
        self._layout: Strides | None = None
        self._moved: Moved | None = None

    # Value, views and in-place changes.

    @property
    def instruction(self) -> Instruction:
        if not self.recorder.open:
            raise self.recorder.returned()
        view = self._view
        if view is not None and self._version != view.base.version:
            now = view.read(view.base).instruction
            if self._scope is not self.recorder.scope:
                return now  # What a loop's body reads is of no use behind it.
            self._instruction, self._version = now, view.base.version
        return self._instruction

    @property
    def version(self) -> int:
        """Counts the changes of the memory that this value lies in."""
        return self._version if self._view is None else self._view.base.version

    def assign(self, new: Tracer) -> None:
        """Become ``new`` (of the same shape and type), in this value's base too where it is a view."""
        view = self._view
        if self._scope is not self.recorder.scope:
            raise self.refusal(
                f"the function of a loop or branch changes an array of {self.aval} in place that is not its argument",
                "pass it in as part of the state (for cond: as an operand), and return it",
            )
        if view is None:
            self._instruction = new.instruction
            self._version += 1
            return
        if view.write is None:
            raise ValueError("assignment destination is read-only")
        made = new.instruction  # before the base changes, of which it may be another view
        view.base.assign(view.write(view.base, new))
        self._instruction, self._version = made, view.base.version

    def as_view(
        self,
        base: Tracer,
        read: Callable[[Tracer], Tracer],
        write: Callable[[Tracer, Tracer], Tracer] | None,
        layout: Strides | None = None,
        place: Any = None,
    ) -> Tracer:
        """This value as a view of ``base``; ``layout`` are the strides that the view has in NumPy."""
        self._view, self._version, self._layout = TracedView(base, read, write, place), base.version, layout
        return self

    def assign_part(self, place: Any, new: Tracer, value: Any, read_at: int) -> None:
        """Become ``new``: this array with ``value``, last read at version ``read_at``, in that ``place``. Raises
        `InputError` for the second half of a swap.
        """
        view = value._view if isinstance(value, Tracer) else None
        source = view.place if view is not None and view.base is self else None
        if source is not None and self._moved is not None:
            self._moved.check(self.version, source, read_at, place, str(self.recorder.place()))
        self.assign(new)
        self._moved = None if source is None else Moved(self.version, place, source)

    @property
    def base(self) -> Tracer | None:
        """The array whose memory this value lies in, which it may only read; None for one of its own."""
        found: Tracer | None = None
        view = self._view
        while view is not None:
            found = view.base
            view = found._view
        return found

    @property
    def layout(self) -> Strides:
        """How this value would lie in memory."""
        return self._layout or Strides.dense(self.shape)

    # What an ndarray knows of itself.

    @property
    def aval(self) -> Shape:
        """Element type and dimensions, as HLO names them."""
        return self._instruction.shape

    @property
    def shape(self) -> tuple[int, ...]:
        return self._instruction.shape.dims

    @shape.setter
    def shape(self, value: Any) -> None:
        self._refuse_change("shape")

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._instruction.shape.dtype.numpy

    @dtype.setter
    def dtype(self, value: Any) -> None:
        self._refuse_change("dtype")

    def _refuse_change(self, name: str) -> NoReturn:
        raise self.refusal(f"x.{name} = ... on a traced value", "use x.reshape(...) or x.view(...)")

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return self._instruction.shape.size

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def T(self) -> Any:  # noqa: N802 - NumPy's name
        return self.transpose()

    @property
    def mT(self) -> Any:  # noqa: N802 - NumPy's name
        return NP.matrix_transpose(self)

    @property
    def real(self) -> Any:
        return NP.real(self)

    @real.setter
    def real(self, value: Any) -> None:
        NP.copyto(NP.real(self), value, casting="unsafe")

    @property
    def imag(self) -> Any:
        return NP.imag(self)

    @imag.setter
    def imag(self, value: Any) -> None:
        NP.copyto(NP.imag(self), value, casting="unsafe")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tracer]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in self.steps(self.shape[0]))

    def __repr__(self) -> str:
        return f"Tracer({self.aval})"

    __str__ = __repr__

    # NumPy's protocols.

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(getattr(i, "is_masked", False) for i in inputs):
            return NotImplemented  # Its own protocol knows what to do.
        return self.recorder.protocols.ufunc(self.recorder, ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return self.recorder.protocols.function(self.recorder, func, args, kwargs)

    def __array_namespace__(self, *, api_version: str | None = None) -> object:
        return self.recorder.protocols.namespace(self.recorder)

    @property
    def device(self) -> str:
        return "cpu"  # NumPy's word for wherever its arrays are.

    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> Any:
        known = known_elements(self._instruction)
        if known is not None:
            return known if dtype is None else known.astype(dtype)
        raise self.refusal(
            "NumPy asked for the elements of a traced value, which has none yet",
            "replace np.array([a, b]) by np.stack([a, b]), np.r_[a, b] by np.concatenate([a, b]), np.c_[a, b] "
            "by np.column_stack([a, b]), table[i] and np.take(table, i) by np.asarray(table, like=i)[i]; "
            "omit np.asarray(x); make buffers with np.zeros(shape, like=x); move loops over elements out of "
            "the function",
        )

    # What would need values.

    def refusal(self, what: str, fix: str) -> UnsupportedError:
        called = called_scipy()
        if called:
            what, fix = f"in SciPy's {called}: {what}", way_out_of(called)
        return UnsupportedError(what, where=str(self.recorder.place()), fix=fix)

    def __bool__(self) -> bool:
        known = known_elements(self._instruction)
        if known is not None:
            return bool(known)
        raise self.refusal(
            f"a branch depends on a traced value of {self.aval}: its value is not known yet",
            "`if` becomes np.where(condition, a, b), or shardc.cond(condition, f, g, *operands) where only one side "
            "may be computed; `while` becomes shardc.while_loop(condition, body, state); `and`, `or` and `0 < x < 1` "
            "become a & b, a | b and (0 < x) & (x < 1); shapes and dtypes are known",
        )

    def steps(self, count: int) -> range:
        """A Python loop of ``count`` steps, each of which becomes operations of its own."""
        if count > _STEPS:
            raise self.refusal(
                f"a loop of {count} steps over a traced value would become that many operations",
                "use NumPy's functions on the whole array, or shardc.scan(f, state, x)",
            )
        return range(count)

    def _number(self, what: str) -> Any:
        """The element of a value that depends on no argument."""
        known = known_elements(self._instruction)
        return self._no_scalar(what) if known is None else known

    def _no_scalar(self, what: str) -> NoReturn:
        raise self.refusal(
            f"{what} of a traced value of {self.aval}: its value is not known yet",
            "keep it an array (np.exp instead of math.exp, x.astype instead of float, buffers by "
            "np.zeros(shape, like=x)), or pass the number as a constant",
        )

    def __float__(self) -> float:
        return float(self._number("float(), a function of the math module or an assignment into a NumPy array"))

    def __int__(self) -> int:
        return int(self._number("int()"))

    def __complex__(self) -> complex:
        return complex(self._number("complex()"))

    def __index__(self) -> int:
        known = known_elements(self._instruction)
        if known is not None:
            return operator.index(known[()])
        raise self.refusal(
            f"a Python index or range() of a traced value of {self.aval}: its value is not known yet",
            "`for i in range(n)` becomes shardc.fori_loop(0, n, lambda i, state: ..., state), items[i] becomes "
            "np.asarray(items, like=i)[i]; or pass the number as a constant (functools.partial)",
        )

    def __floor__(self) -> int:
        self._no_scalar("math.floor()")

    def __ceil__(self) -> int:
        self._no_scalar("math.ceil()")

    def __trunc__(self) -> int:
        self._no_scalar("math.trunc()")

    def __round__(self, digits: int = 0) -> Any:
        return self.round(digits)

    def __contains__(self, value: Any) -> bool:
        raise self.refusal("`in` on a traced value depends on values", "use np.any(x == value)")

    def __format__(self, spec: str) -> str:
        if spec:
            self._no_scalar(f"formatting ({spec})")
        return repr(self)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise self.refusal(
            f"a traced value of {self.aval} cannot be pickled: it has no elements yet",
            "send, save or cache results outside the function; inside, omit calls such as comm.allreduce: "
            "a sum over a sharded array covers all of it",
        )

    def item(self, *args: Any) -> NoReturn:
        self._no_scalar("item()")

    def tolist(self) -> NoReturn:
        self._no_scalar("tolist()")

    def __getattr__(self, name: str) -> Any:
        if name in _REFUSED_ATTRIBUTES:
            raise self.refusal(f"x.{name} of a traced value", _REFUSED_ATTRIBUTES[name])
        raise AttributeError(f"a traced value has no attribute {name!r}")

    # Indexing.

    def __getitem__(self, index: Any) -> Tracer:
        return self._call(_getitem, index)  # type: ignore[no-any-return]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._call(_setitem, index, value)

    def _call(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        return self.recorder.protocols.function(self.recorder, func, (self, *args), kwargs)

    # Methods that NumPy has no function for.

    def astype(
        self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
    ) -> Any:
        return self._call(_astype, dtype, casting=casting, copy=copy)

    def view(self, dtype: Any = None) -> Any:
        return self._call(_view_as, dtype)

    def copy(self, order: str = "C") -> Any:
        return NP.copy(self)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def fill(self, value: Any) -> None:
        self[...] = value

    def flatten(self, order: str = "C") -> Any:
        return NP.ravel(self, order=order).copy()

    def reshape(self, *shape: Any, order: str = "C", copy: Any = None) -> Any:
        whole = shape[0] if len(shape) == 1 else shape
        return NP.reshape(self, whole, order=order, copy=copy)

    def transpose(self, *axes: Any) -> Any:
        order = None if not axes else axes[0] if len(axes) == 1 else axes
        return NP.transpose(self, order)

    def sort(self, axis: int = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> None:
        self[...] = NP.sort(self, axis=axis)

    def partition(self, kth: Any, axis: int = -1) -> None:
        self[...] = NP.partition(self, kth, axis=axis)


def _getitem(x: Any, index: Any) -> Any:
    """Stands for ``x[index]`` in the table of functions."""


def _setitem(x: Any, index: Any, value: Any) -> Any:
    """Stands for ``x[index] = value``."""


def _astype(x: Any, dtype: Any, casting: str = "unsafe", copy: bool = True) -> Any:
    """Stands for ``x.astype(dtype)``."""


def _view_as(x: Any, dtype: Any) -> Any:
    """Stands for ``x.view(dtype)``."""


def _weak_result(ufunc: Any, a: Any, b: Any, out: Any) -> Any:
    """What Python's operators give for two Python scalars is a Python scalar again."""
    kinds = [x.weak if isinstance(x, Tracer) else type(x) for x in (a, b)]
    if isinstance(out, Tracer) and all(k in (int, float, complex) for k in kinds):
        out.weak = {"i": int, "f": float, "c": complex}.get(out.dtype.kind)
    return out


def _binary(ufunc: Any) -> Any:
    def operator(self: Tracer, other: Any, *modulo: Any) -> Any:
        if modulo or getattr(other, "__array_ufunc__", ufunc) is None:
            return NotImplemented
        return _weak_result(ufunc, self, other, ufunc(self, other))

    return operator


def _to_power(self: Tracer, exponent: Any, *modulo: Any) -> Any:
    """The operator, which is np.square for the exponent 2: of a bool this is int8, and np.power(x, 2) is int64."""
    squares = type(exponent) is int and exponent == 2 and not modulo and self.aval.dtype.kind == "pred"
    return NP.square(self) if squares else _binary(np.power)(self, exponent, *modulo)


def _reflect(ufunc: Any) -> Any:
    def operator(self: Tracer, other: Any) -> Any:
        return _weak_result(ufunc, other, self, ufunc(other, self))

    return operator


def _in_place(ufunc: Any) -> Any:
    def operator(self: Tracer, other: Any) -> Any:
        if not self.shape:  # NumPy's scalars are not changed, the name is bound anew.
            return _weak_result(ufunc, self, other, ufunc(self, other))
        return ufunc(self, other, out=(self,))

    return operator


def _unary(ufunc: Any) -> Any:
    def operator(self: Tracer) -> Any:
        return _weak_result(ufunc, self, self, ufunc(self))

    return operator


def _method(func: Any) -> Any:
    def method(self: Tracer, *args: Any, **kwargs: Any) -> Any:
        return func(self, *args, **kwargs)

    method.__name__ = func.__name__
    return method


_OPERATORS: Mapping[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "pow": np.power,
    "matmul": np.matmul,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
}
_COMPARISONS: Mapping[str, Any] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNARY: Mapping[str, Any] = {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}
_METHODS = (
    "all any argmax argmin argsort argpartition choose clip compress cumprod cumsum diagonal dot max mean min "
    "prod ptp put ravel repeat round searchsorted squeeze std sum swapaxes take trace var"
)


def _conjugated(self: Tracer) -> Any:
    """The array itself if it is real; the function `numpy.conjugate` makes numbers of bools."""
    return NP.conjugate(self) if self.aval.dtype.is_complex else self


def _install(cls: type[Tracer]) -> None:
    """Operators and methods that are a NumPy function each."""
    for name, ufunc in _OPERATORS.items():
        setattr(cls, f"__{name}__", _to_power if name == "pow" else _binary(ufunc))
        setattr(cls, f"__r{name}__", _reflect(ufunc))
        setattr(cls, f"__i{name}__", _in_place(ufunc))
    for name, ufunc in _COMPARISONS.items():
        setattr(cls, f"__{name}__", _binary(ufunc))
    for name, ufunc in _UNARY.items():
        setattr(cls, f"__{name}__", _unary(ufunc))
    for name, make in (("divmod", _binary), ("rdivmod", _reflect)):
        setattr(cls, f"__{name}__", make(np.divmod))
    cls.__hash__ = None  # type: ignore[assignment]
    for name in _METHODS.split():
        setattr(cls, name, _method(getattr(np, name)))
    cls.conj = cls.conjugate = _conjugated  # type: ignore[attr-defined]


_install(Tracer)
