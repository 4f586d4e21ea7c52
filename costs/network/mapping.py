"""Mesh axes onto links: row-major, as given, or the best for what a program moves.

By default the last axes lie innermost. Dimensions of a torus are taken in that order in which the most axes have whole
dimensions for themselves, and so links that no other axis uses.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from shardc.costs.machines.machine import GivenMapping, Machine, mapping_text
from shardc.costs.network.placement import AxisPiece, Placement
from shardc.costs.network.topology import Links, links_of
from shardc.hlo.errors import AnnotationError, InputError
from shardc.hlo.ir.mesh import Mesh

__all__ = ["candidates", "place", "search"]

#: Orders of axes that are looked at: all of up to seven axes.
_ORDERS = 5040

#: (number of the links, size) outermost first, and (axis, size) outermost first.
_Dims = Sequence[tuple[int, int]]
_Axes = Sequence[tuple[str, int]]
_Cut = list[tuple[str, int, int]]


def place(machine: Machine, mesh: Mesh, mapping: GivenMapping | None = None) -> Placement:
    """The devices of ``mesh`` on ``machine``, cut to that size.

    ``mapping`` says by axis which links it lies on, outermost first (``"data=dcn,fsdp=x+y,tensor=z"``; axes that are
    not named take what is left), or gives the order of the axes, outermost first (``"tensor,data"``); default: the
    machine's own. Raises `InputError`, with the numbers, where the mesh does not fit.

    Example: ``place(load_machine("tpu-v5p"), Mesh({"fsdp": 16, "tensor": 4})).describe()`` is
    ``{"fsdp": "torus x,y", "tensor": "torus z"}``.
    """
    given = _read(mapping or machine.mapping, mesh)
    axes = [(n, s) for n, s in mesh.axes if s > 1]
    if isinstance(given, list):
        axes.sort(key=lambda axis: given.index(axis[0]))
    links = links_of(machine, mesh.size, [s for _, s in reversed(axes)] if not isinstance(given, dict) else ())
    cut = _read_given(given, axes, links, machine) if isinstance(given, dict) else _whole(axes, links)
    if cut is None:
        raise _misfit(axes, links, machine, mesh)
    return _place(machine, mesh, links, cut)


def candidates(machine: Machine, mesh: Mesh) -> Iterator[Placement]:
    """Placements worth comparing, the default one first: orders of the axes, and of a torus's dimensions.

    Behind a switch all places are alike, so orders that differ only there count once.
    """
    machine = replace(machine, mapping="")
    first = place(machine, mesh)
    seen = {_distinct(first)}
    yield first
    axes = [(n, s) for n, s in mesh.axes if s > 1]
    for order in itertools.islice(itertools.permutations(axes), _ORDERS):
        try:
            links = links_of(machine, mesh.size, [s for _, s in reversed(order)])
        except InputError:
            continue
        for dims in _orders(links):
            cut = _row_major(order, dims)
            found = None if cut is None else _place(machine, mesh, links, cut)
            if found is not None and _distinct(found) not in seen:
                seen.add(_distinct(found))
                yield found


def _distinct(placement: Placement) -> object:
    """What tells placements apart."""
    links = placement.links
    return links, tuple((p.axis, p.links, p.size, p.apart, p.stride * links[p.links].torus) for p in placement.pieces)


def search(machine: Machine, mesh: Mesh, seconds: Callable[[Placement], float]) -> Placement:
    """The candidate that takes the fewest ``seconds``; the first of equals."""
    return min(candidates(machine, mesh), key=lambda p: round(seconds(p), 12))


def _read(given: GivenMapping | None, mesh: Mesh) -> list[str] | dict[str, list[str]] | None:
    """A mapping as the order of all axes, or as names of links by axis."""
    mapping = mapping_text(given)
    if not mapping:
        return None
    if mapping == "search":
        fix = 'use --map search of shardc simulate, mapping="search" in Python, or name an order ("data,model")'
        raise InputError("'search' is a mapping only for a simulation of a program", where="mapping", fix=fix)
    parts = [p.strip() for p in mapping.split(",") if p.strip()]
    rows = dict(p.split("=", 1) for p in parts if "=" in p)
    named = [p.partition("=")[0] for p in parts if "=" in p]
    names = named + [p for p in parts if "=" not in p]
    if not names:
        raise InputError(f"the mapping {mapping!r} names no axis", fix=_FIX)
    for name in names:
        if name.strip() not in mesh.axis_names:
            axes = ", ".join(mesh.axis_names)
            raise AnnotationError(f"mesh has no axis {name.strip()!r}; its axes are {axes}", where="mapping", fix=_FIX)
    if len(set(names)) < len(names) or len(rows) not in (0, len(names)):
        raise InputError(f"the mapping {mapping!r} is neither an order of axes nor axis=links", fix=_FIX)
    if rows:
        return {n.strip(): [d.strip() for d in text.split("+") if d.strip()] for n, text in rows.items()}
    rest = [n for n, s in mesh.axes if n not in names and s > 1]
    return rest + names + [n for n, s in mesh.axes if s == 1 and n not in names]


_FIX = 'give an order, outermost first ("data,model"), or links by axis ("data=dcn,fsdp=x+y,tensor=z"), or "search"'


def _orders(links: Sequence[Links]) -> Iterator[_Dims]:
    """Dimensions of the grid, outermost first; those of a torus in every order."""
    levels = [list(group) for _, group in itertools.groupby(reversed(range(len(links))), key=lambda n: links[n].level)]
    for chosen in itertools.product(*(itertools.permutations(level) for level in levels)):
        yield [(n, links[n].size) for level in chosen for n in level if links[n].size > 1]


def _row_major(axes: _Axes, dims: _Dims) -> _Cut | None:
    """Pieces (axis, links, size), innermost first, where axes and dimensions are the same numbers in other groups."""
    out: _Cut = []
    left = [[n, s] for n, s in dims]
    for axis, size in reversed(axes):
        while size > 1:
            if not left:
                return None
            n, room = left[-1]
            common = math.gcd(size, room)
            if common == 1:
                return None
            out.append((axis, n, common))
            size //= common
            left[-1][1] //= common
            if left[-1][1] == 1:
                left.pop()
    return out


def _whole(axes: _Axes, links: Sequence[Links]) -> _Cut | None:
    """Row-major, with the dimensions of a torus in the order that cuts fewest of them."""
    best: tuple[int, _Cut] | None = None
    for dims in _orders(links):
        cut = _row_major(axes, dims)
        if cut is None:
            continue
        parts = sum(size < links[n].size for _, n, size in cut)
        if best is None or parts < best[0]:
            best = (parts, cut)
    return best[1] if best else None


def _read_given(given: dict[str, list[str]], axes: _Axes, links: Sequence[Links], machine: Machine) -> _Cut:
    """Pieces as the mapping has them; axes on the same links lie there in the order of the mesh, axes that it does not
    name on whatever is left."""
    room = {n: x.size for n, x in enumerate(links)}
    out: _Cut = []
    inner_first = list(reversed(axes))
    for axis, size in sorted(inner_first, key=lambda a: a[0] not in given):
        numbers = [n for name in given.get(axis, []) for n in _named(name, links, machine)]
        if twice := next((links[n].name for n in numbers if numbers.count(n) > 1), None):
            raise InputError(f"the mapping names {twice} twice for axis {axis}", fix="name links once for each axis")
        if axis not in given:
            numbers = [n for n in reversed(range(len(links))) if room[n] > 1]
        left = size
        for n in reversed(numbers):
            common = math.gcd(left, room[n])
            if common > 1:
                out.append((axis, n, common))
                left //= common
                room[n] //= common
        if left > 1:
            on = " and ".join(f"{links[n].name} ({links[n].size})" for n in numbers) or "no links"
            beside = list(dict.fromkeys(a for a, n, _ in out if n in numbers and a != axis))
            taken = f" beside {' and '.join(f'{a} ({dict(axes)[a]})' for a in beside)}" if beside else ""
            fix = "name links whose sizes multiply to the size of the axis: " + _sizes(links)
            if not machine.counts and any(links[n].size == 1 for n in numbers):
                rest = math.prod(n for _, n in axes) // size
                fix += f"; or name a machine of {size} groups of {rest}: {machine.name}:{size}x{rest}"
            raise InputError(f"axis {axis} of {size} does not fit on {on} of {machine.title}{taken}", fix=fix)
    return out


def _named(name: str, links: Sequence[Links], machine: Machine) -> list[int]:
    """Numbers of the links called so: by name, by dimension (x), or all of a torus."""
    outermost = list(reversed(range(len(links))))
    found = [n for n in outermost if name in (links[n].name, machine.levels[links[n].level].name)]
    found = found or [n for n in outermost if links[n].torus and links[n].name.endswith(f" {name}")]
    if not found:
        raise InputError(
            f"{machine.title} has no links called {name!r}", where="mapping", fix=f"it has {_sizes(links)}"
        )
    return found


def _sizes(links: Sequence[Links]) -> str:
    return ", ".join(f"{x.name} ({x.size})" for x in reversed(links) if x.size > 1) or "one device"


def _place(machine: Machine, mesh: Mesh, links: tuple[Links, ...], cut: _Cut) -> Placement:
    """Pieces with their distances in the mesh and along the links."""
    inner, left = {}, mesh.size
    for name, size in mesh.axes:
        left //= size
        inner[name] = left
    stride = [1] * len(links)
    pieces = []
    for axis, n, size in cut:
        pieces.append(AxisPiece(axis, n, size, inner[axis], stride[n]))
        inner[axis] *= size
        stride[n] *= size
    names = mesh.axis_names
    pieces.sort(key=lambda p: (names.index(p.axis), -p.apart))
    return Placement(machine, mesh, links, tuple(pieces))


def _misfit(axes: _Axes, links: Sequence[Links], machine: Machine, mesh: Mesh) -> InputError:
    return InputError(
        f"mesh {','.join(f'{n}={s}' for n, s in axes)} cannot be mapped to the links of {machine.title}: "
        + _sizes(links),
        fix="use axes whose sizes divide these numbers or are multiples of them, or a mesh of another size than "
        f"{mesh.size}",
    )
