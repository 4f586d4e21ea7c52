"""Checks that a traced function is pure: the same in every call, without code that reads elements of traced values."""

from __future__ import annotations

import importlib
import random
import re
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.random import bit_generator

from shardc.hlo.errors import InputError, Location, ShardcError, UnsupportedError
from shardc.hlo.ir.ir import Computation, Instruction, Metadata
from shardc.hlo.numpy.recorder import Trace, is_users, user_line
from shardc.hlo.numpy.scipy_calls import failed_scipy

__all__ = ["Generators", "check_numbers", "check_repeats", "translate_errors"]

_PASS_IN = (
    "pass values that change between calls as arguments: draw random numbers outside of the function, once for "
    "each call"
)
_ISeedSequence: Any = bit_generator.ISeedSequence
#: What an abstract class was asked: only CPython tells. Elsewhere generators with a seed of their own go unnoticed.
_asked: Any = getattr(importlib.import_module("_abc"), "_get_dump", lambda cls: (None, (), ()))
_NAMESPACES = re.compile(r"\bArrayNamespace\b")
_JAX = re.compile(r"-packages[/\\]jax[/\\]")
_OURS = re.compile(r"\b(Tracer|Masked)\b|traced value")


def check_repeats(first: Computation, second: Computation) -> None:
    """Raise `InputError` where two traces of one function differ; the second may share instructions of the first."""
    found = _difference(first, second)
    if found is None:
        return
    a, b = found
    told = _describe(a), _describe(b)
    ways = f"two different values of {told[0]}" if told[0] == told[1] else f"{told[0]}, then {told[1]}"
    place = (b if a is first.root else a).metadata  # The root tells no line of what it takes.
    raise _differs(ways, place, first.name)


def check_numbers(first: Trace, second: Trace) -> None:
    """Raise `InputError` where the traces used different Python floats, which may be equal once float32 rounds them."""
    for (a, place), (b, _) in zip(first.numbers, second.numbers, strict=False):
        if a != b and not (np.isnan(a) and np.isnan(b)):
            raise _differs(f"the number {a}, then {b}", place, first.name)


def _differs(ways: str, place: Metadata | None, name: str) -> InputError:
    return InputError(
        f"two traces of the function differ ({ways}): "
        "it depends on np.random, a counter, a clock or a file, which change between calls",
        where=Location(place.source_file, place.source_line) if place else name,
        fix=_PASS_IN,
    )


def _difference(first: Computation, second: Computation) -> tuple[Instruction, Instruction] | None:
    """The first two instructions in which the computations differ."""
    places = [{i: k for k, i in enumerate(c)} for c in (first, second)]
    for a, b in zip(first, second, strict=False):
        same = a.opcode == b.opcode and a.shape == b.shape and a.attrs.keys() == b.attrs.keys()
        if not same or [places[0][o] for o in a.operands] != [places[1][o] for o in b.operands]:
            return a, b
        for name, value in a.attrs.items():
            other = b.attrs[name]
            if isinstance(value, Computation) and isinstance(other, Computation):
                if _difference(value, other) is not None:
                    return a, b
            elif value != other:
                return a, b
    if len(list(first)) != len(list(second)):
        return first.root, second.root
    return None


def _describe(i: Instruction) -> str:
    value = i.attrs["literal"].splat if i.opcode == "constant" else None
    return f"{i.opcode} {i.shape}" if value is None else f"the number {value}"


class Generators:
    """Random generators that are made or seeded inside of a function, which then draws the same numbers in every call.

    Those that are there before show in `check_repeats`. NumPy asks of each seed whether it is an ISeedSequence, an
    abstract class, which keeps what it was asked; and where that is asked is seen by a profile function.
    """

    def __init__(self) -> None:
        self._state = _global_state()
        self._places: list[Location] = []
        _ISeedSequence._abc_caches_clear()

    @property
    def noticed(self) -> bool:
        return any(_asked(_ISeedSequence)[1:3]) or _global_state() != self._state

    @contextmanager
    def locate(self) -> Iterator[None]:
        """Find the lines of the generators that are made inside, where some were noticed."""
        if not self.noticed or sys.getprofile() is not None:  # A profiler of the user's is left alone.
            yield
            return

        def look(frame: Any, event: str, arg: Any) -> None:
            asked = event == "call" and frame.f_code.co_name == "__instancecheck__"
            if asked and frame.f_locals.get("cls") is _ISeedSequence:
                self._places.append(Location(*user_line(frame)))

        sys.setprofile(look)
        try:
            yield
        finally:
            sys.setprofile(None)

    def warn(self) -> None:
        if not self.noticed:
            return
        place = next(iter(self._places), Location("<traced>"))
        warnings.warn_explicit(
            f"random numbers that a traced function draws from a generator of its own ({place}) are constants of the "
            f"program, the same in every call; {_PASS_IN}",
            RuntimeWarning,
            place.file,
            max(place.line, 1),
        )


def _global_state() -> tuple[Any, ...]:
    state: Any = np.random.get_state()  # noqa: NPY002 - looked at, not drawn from
    return (state[1].tobytes(), *state[2:], random.getstate())


@contextmanager
def translate_errors() -> Iterator[None]:
    """Errors of NumPy, Python or libraries that could not use a traced value come out as ours, with the user's line;
    so does one of ours that NumPy has wrapped into one of its own."""
    try:
        yield
    except ShardcError:
        raise
    except Exception as e:
        if isinstance(e.__cause__, ShardcError):
            raise e.__cause__ from None
        frames = [f for f in traceback.extract_tb(e.__traceback__) if is_users(f.filename)]
        frames = [f for f in frames if not _JAX.search(f.filename)] or frames
        place = Location(frames[-1].filename, frames[-1].lineno or 0) if frames else Location("<traced>")
        if _NAMESPACES.search(str(e)):
            name = failed_scipy(e)
            called = f"SciPy's {name}" if name else "a library's function"
            raise UnsupportedError(
                f"{called} was called with both traced and plain arrays",
                where=place,
                fix="pass traced arrays only: np.asarray(plain, like=x), np.ones(5, like=x) for a traced x",
            ) from e
        if _OURS.search(str(e)):
            raise UnsupportedError(
                f"a traced value, which has no elements yet, was used where elements are needed: {e}",
                where=place,
                fix=_way_out(e),
            ) from e
        if frames:
            e.add_note(f"raised while shardc traced the function, at {place}")
        raise


def _way_out(error: Exception) -> str:
    """What to do where a traced value was used as if it had elements."""
    frames = traceback.extract_tb(error.__traceback__)
    if "JAX" in str(error) or any(_JAX.search(frame.filename) for frame in frames):
        return "shardc.trace takes functions of NumPy; for those of JAX use shardc.from_jax(f, *args) or shardc.jit(f)"
    return "keep to NumPy's functions inside of the function, and do this outside of it, with its results"
