"""Our `dataclass` beside the standard library's: the same classes, values, errors and pickles."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import field, fields, is_dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from shardc.hlo import lazy_dataclass

DECORATORS: dict[str, Callable[..., Any]] = {"standard": dataclasses.dataclass, "lazy": lazy_dataclass.dataclass}


def classes(dataclass: Callable[..., Any]) -> SimpleNamespace:
    @dataclass(frozen=True, slots=True)
    class Point:
        """A point."""

        x: int
        y: Any = 2
        note: str = field(default="", compare=False)
        kinds: dict[str, int] = field(default_factory=dict, hash=False)
        family: ClassVar[str] = "points"

        def moved(self) -> Any:
            return replace(self, x=self.x + 1)

    @dataclass(frozen=True, slots=True)
    class Deep(Point):
        z: int = 7
        made: int = field(default=5, init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "made", self.z + 1)

    @dataclass(slots=True)
    class Open:
        a: list[int] = field(default_factory=list)
        b: int = field(default=1, repr=False, kw_only=True)

    @dataclass(frozen=True, eq=False)
    class Same:
        a: int = 1

    @dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        a: int
        b: int = 0

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named:
        a: int
        b: int = 3

    @dataclass(frozen=True)
    class Own:
        a: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

        def __hash__(self) -> int:
            return 3

        def __repr__(self) -> str:
            return "own"

    @dataclass(frozen=True, slots=True)
    class Empty:
        pass

    @dataclass
    class Node:
        next: Any = None

    return SimpleNamespace(**{k: v for k, v in locals().items() if isinstance(v, type)})


BOTH = {name: classes(d) for name, d in DECORATORS.items()}

ACTIONS: dict[str, Callable[[SimpleNamespace], Any]] = {
    "a value": lambda c: c.Point(1),
    "all of it": lambda c: c.Point(1, y=[3], note="n", kinds={"a": 1}),
    "equal": lambda c: [c.Point(1) == c.Point(1, note="other"), c.Point(1) == c.Point(2), c.Point(1) == c.Deep(1)],
    "equal by identity": lambda c: c.Point(1, np.nan) == c.Point(1, np.nan),
    "equal to others": lambda c: [c.Point(1) == 1, c.Open() != c.Same(), c.Point(1).__eq__(1)],
    "hash": lambda c: [hash(c.Point(1)), hash(c.Point(1, note="x", kinds={"b": 2})), hash(c.Empty())],
    "no hash": lambda c: hash(c.Open()),
    "hash of what is no value": lambda c: hash(c.Point([])),
    "identity": lambda c: [c.Same() == c.Same(), c.Same.__hash__ is object.__hash__],
    "own methods": lambda c: [c.Own(1) == c.Own(2), hash(c.Own(5)), repr(c.Own(1))],
    "too few": lambda c: c.Point(),
    "too many": lambda c: c.Point(1, 2, "3", {}, 5),
    "unknown": lambda c: c.Point(1, q=2),
    "by name only": lambda c: [c.Named(a=1), c.Open([1], b=3)],
    "by name only, refused": lambda c: c.Named(1),
    "factories": lambda c: [c.Open().a is c.Open().a, c.Point(1).kinds is c.Point(1).kinds],
    "changed": lambda c: setattr(c.Point(1), "x", 2),
    "new attribute of a subclass": lambda c: setattr(c.Deep(1), "fresh", 2),
    "deleted": lambda c: delattr(c.Point(1), "x"),
    "changed where it may be": lambda c: [(v := c.Open(), setattr(v, "b", 4), v.b)[-1]],
    "inherited": lambda c: [c.Deep(1, z=3), c.Deep(1).made, c.Deep(4).moved()],
    "replaced": lambda c: [c.Point(1).moved(), replace(c.Open(), b=9).b],
    "replaced what is not given": lambda c: replace(c.Deep(1), made=3),
    "ordered": lambda c: sorted([c.Ordered(2), c.Ordered(1, 5), c.Ordered(1)]),
    "copies": lambda c: [copy.copy(c.Point(1)), copy.deepcopy(c.Point(1, [1]))],
    "a circle": lambda c: [n := c.Node(), setattr(n, "next", n)],
    "matched": lambda c: [c.Point.__match_args__, c.Open.__match_args__],
    "slots": lambda c: [vars(c.Point)["__slots__"], vars(c.Deep)["__slots__"], "__slots__" in vars(c.Own)],
    "as data": lambda c: [dataclasses.asdict(c.Deep(1)), dataclasses.astuple(c.Open([1]))],
    "documented": lambda c: c.Point.__doc__,
    "class variables": lambda c: [c.Point.family, [f.name for f in fields(c.Point)]],
    "parameters": lambda c: [
        (is_dataclass(k), *(getattr(k.__dataclass_params__, n) for n in ("init", "repr", "eq", "order", "frozen")))
        for k in vars(c).values()
    ],
}


def outcome(action: Callable[[SimpleNamespace], Any], made: SimpleNamespace) -> Any:
    try:
        return repr(action(made))
    except Exception as e:
        return type(e), str(e).replace("classes.<locals>.", "")


@pytest.mark.parametrize("name", ACTIONS)
def test_same_outcome(name: str) -> None:
    wanted = outcome(ACTIONS[name], classes(dataclasses.dataclass))
    assert outcome(ACTIONS[name], classes(lazy_dataclass.dataclass)) == wanted
    assert outcome(ACTIONS[name], BOTH["lazy"]) == wanted  # and when methods are made already


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Kept:
    a: int
    b: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class KeptMore(Kept):
    c: int = 0


@pytest.mark.parametrize("value", [Kept(1, (2,)), KeptMore(1, (), 3)])
def test_pickles(value: Kept) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert "Kept" in pickle.dumps(value).decode("latin-1")


def test_a_new_attribute_is_refused_by_name() -> None:
    """The standard library's message, where there are slots, is about an argument of ``super``."""
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'fresh'"):
        setattr(Kept(1), "fresh", 2)  # noqa: B010


def test_methods_are_made_when_they_are_needed() -> None:
    @lazy_dataclass.dataclass(frozen=True)
    class Late:
        a: int

    first = vars(Late)["__init__"]
    assert Late(1).a == 1
    assert vars(Late)["__init__"] is not first
    assert vars(Late)["__init__"].__code__.co_varnames == ("self", "a")


def test_nothing_is_compiled_on_import() -> None:
    """Where the standard decorator would do it."""
    program = (
        "import dataclasses; made = []; old = dataclasses._create_fn if hasattr(dataclasses, '_create_fn') else None\n"
        "dataclasses._create_fn = lambda name, *a, **k: (made.append(name), old(name, *a, **k))[1]\n"
        "import shardc.hlo.ir.ir, shardc.compiler.executable\n"
        "print(len(made) if old else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 60  # what `native` and inheritance leave
