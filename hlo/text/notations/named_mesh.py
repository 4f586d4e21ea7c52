"""The named-mesh notation (V3) of HLO text: ``mesh['x'=2,'y'=4]``, axes ``'y':(1)2``, dimension lists.

Priorities (``p1`` behind a dimension) are Shardy's; XLA's own parser does not know them, so they are read and not
written.
"""

from __future__ import annotations

import math
import re

from shardc.hlo.errors import AnnotationError, UnsupportedError
from shardc.hlo.ir.iota import iota_of_strides
from shardc.hlo.ir.mesh import Mesh, check_listable
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.hlo.text.scanner import STRING, Scanner, unquote

__all__ = [
    "merge_axes",
    "parse_dims",
    "parse_mesh",
    "parse_mesh_axes",
    "parse_mesh_sharding",
    "parse_parts",
    "print_mesh",
    "print_mesh_sharding",
]

_MESH = re.compile(r"\s*mesh\s*\[")
_SINGLE = re.compile(r"\s*(?:single_device|maximal_mesh)\s*\[\s*device_id\s*=\s*(\d+)\s*\]")
_DEVICE_IDS = re.compile(r"\s*,?\s*device_ids\s*=\s*\(")
_IOTA = re.compile(r"\s*\[([\d,\s]*)\]\s*(?:T\s*\(([\d,\s]*)\)\s*)?\)")
_ID_LIST = re.compile(r"\s*([\d,\s]*)\)")
_NUMBER = re.compile(r"\s*(\d+)")
_SUB_AXIS = re.compile(r"\s*:\s*\(\s*(\d+)\s*\)\s*(\d+)")
_WHOLE = re.compile(r"\s*,?\s*(replicated|manual|unreduced)(?:\s*=\s*(sum|max|min))?\s*\}")
_PART = re.compile(r"\s*(replicated|unreduced|manual|metadata)\s*=\s*(sum|max|min)?")
_PRIORITY = re.compile(r"\s*p(\d+)")


def parse_mesh(scanner: Scanner) -> Mesh:
    """``mesh['x'=2,'y'=4]`` with optional ``device_ids=(3,2,1,0)`` or ``device_ids=([2,4]T(1,0))``."""
    scanner.take(_MESH, "mesh['axis'=size, ...]")
    axes: list[tuple[str, int]] = []
    while not scanner.accept("]"):
        scanner.skip_space()
        name = unquote(scanner.take(STRING, "a quoted axis name").group())
        scanner.expect("=", "after a mesh axis")
        axes.append((name, int(scanner.take(_NUMBER, "the size of a mesh axis").group(1))))
        if scanner.accept("]"):
            break
        scanner.expect(",", "between mesh axes")
    start = scanner.pos
    try:
        return Mesh(tuple(axes), _device_ids(scanner))
    except (AnnotationError, UnsupportedError) as e:
        raise scanner.error(e.what, at=start, fix=e.fix) from None


def _device_ids(scanner: Scanner) -> tuple[int, ...] | None:
    if scanner.match(_DEVICE_IDS) is None:
        return None
    found = scanner.match(_IOTA)
    if found is None:
        text = scanner.take(_ID_LIST, "device ids such as (1,0)").group(1)
        return tuple(int(d) for d in text.split(","))
    reshape = [int(d) for d in found.group(1).split(",")]
    order = [int(d) for d in found.group(2).split(",")] if found.group(2) else list(range(len(reshape)))
    if sorted(order) != list(range(len(reshape))):
        raise scanner.error(f"T{tuple(order)} is not a permutation of the iota's dimensions")
    strides = [math.prod(reshape[i + 1 :]) for i in range(len(reshape))]
    if not iota_of_strides([reshape[d] for d in order], [strides[d] for d in order]).transpose:
        return None
    check_listable(math.prod(reshape), "an order")
    ids = [0]
    for d in reversed(order):
        ids = [v + i * strides[d] for i in range(reshape[d]) for v in ids]
    return tuple(ids)


def parse_mesh_axes(scanner: Scanner, mesh: Mesh) -> tuple[AxisRef, ...]:
    """``{'x', 'y':(1)2}``; an axis may also be given by its number."""
    axes, is_closed = _axes(scanner, mesh)
    if not is_closed:
        raise scanner.error("'?' is allowed only in the dimensions of a sharding")
    return axes


def _axes(scanner: Scanner, mesh: Mesh, place: str = "") -> tuple[tuple[AxisRef, ...], bool]:
    scanner.expect("{", "at the start of a list of axes")
    axes: list[AxisRef] = []
    closed = True
    while not scanner.accept("}"):
        scanner.skip_space()
        if scanner.accept("?"):
            closed = False
        else:
            axes.append(_axis(scanner, mesh, place))
        if scanner.accept("}"):
            break
        scanner.expect(",", "between axes")
        if not closed:
            raise scanner.error("'?' must be the last entry of a dimension")
    return tuple(axes), closed


def _axis(scanner: Scanner, mesh: Mesh, place: str) -> AxisRef:
    start = scanner.pos
    name = unquote(scanner.take(STRING, "a quoted axis name").group())
    if name not in mesh.axis_names:
        if not name.isdigit() or int(name) >= len(mesh.axes):
            known = ", ".join(mesh.axis_names)
            raise scanner.error(f"{place}the mesh has no axis {name!r}", at=start, fix=f"its axes are {known}")
        name = mesh.axis_names[int(name)]
    found = scanner.match(_SUB_AXIS)
    if found is None:
        return AxisRef(name)
    pre, size = int(found.group(1)), int(found.group(2))
    if pre < 1 or size < 1 or mesh.axis_size(name) % (pre * size):
        raise scanner.error(
            f"{place}sub-axis {name}:({pre}){size} does not divide the axis, whose size is {mesh.axis_size(name)}",
            at=start,
        )
    return AxisRef(name) if (pre, size) == (1, mesh.axis_size(name)) else AxisRef(name, pre, size)


def parse_mesh_sharding(scanner: Scanner, rank: int | None) -> Sharding | None:
    """A V3 sharding behind its opening brace, up to and with the closing one; None when it is no V3 sharding."""
    single = scanner.match(_SINGLE)
    if single is not None:
        parse_parts(scanner, Mesh())
        return Sharding(Mesh((), (int(single.group(1)),)), (DimSharding(),) * (rank or 0))
    if _MESH.match(scanner.text, scanner.pos) is None:
        return None
    start = scanner.pos
    mesh = parse_mesh(scanner)
    whole = scanner.match(_WHOLE)
    if whole is not None:
        return _whole_mesh(mesh, whole.group(1), whole.group(2) or "sum", rank or 0)
    scanner.accept(",")
    dims = parse_dims(scanner, mesh) if scanner.peek() == "[" else ()
    scanner.accept(",")
    parts, reduction = parse_parts(scanner, mesh)
    if any(not a.is_full for a in parts["manual"]):
        raise scanner.error("manual axes must be whole axes", at=start)
    sharding = Sharding(
        mesh,
        dims or (DimSharding(),) * (rank or 0),
        parts["replicated"],
        parts["unreduced"],
        reduction,
        tuple(a.name for a in parts["manual"]),
    )
    _check_overlap(scanner, sharding, start)
    return sharding


def parse_parts(scanner: Scanner, mesh: Mesh, end: str = "}") -> tuple[dict[str, tuple[AxisRef, ...]], str]:
    """``replicated={..}, unreduced=max{..}, manual={..}, metadata={..}`` in any order, and the closing ``end``."""
    parts: dict[str, tuple[AxisRef, ...]] = {}
    reduction = "sum"
    scanner.accept(",")
    while not scanner.accept(end):
        found = scanner.take(_PART, "replicated=, unreduced=, manual=, metadata= or the end of a sharding")
        kind = found.group(1)
        if kind in parts or (found.group(2) and kind != "unreduced"):
            raise scanner.error(f"malformed {kind!r} part of a sharding", at=found.start(1))
        reduction = found.group(2) or reduction
        if kind == "metadata":
            scanner.take_bracketed()
            parts[kind] = ()
        else:
            parts[kind] = parse_mesh_axes(scanner, mesh)
        if scanner.accept(end):
            break
        scanner.expect(",", "between parts of a sharding")
    return {k: parts.get(k, ()) for k in ("replicated", "unreduced", "manual")}, reduction


def _whole_mesh(mesh: Mesh, kind: str, reduction: str, rank: int) -> Sharding:
    everything = tuple(AxisRef(n) for n in mesh.axis_names)
    dims = (DimSharding(),) * rank
    if kind == "manual":
        return Sharding(mesh, dims, manual=mesh.axis_names)
    if kind == "unreduced":
        return Sharding(mesh, dims, unreduced=everything, reduction=reduction)
    return Sharding(mesh, dims)


def parse_dims(scanner: Scanner, mesh: Mesh) -> tuple[DimSharding, ...]:
    """``[{'x'}, {'y', ?}p1]``, one entry per dimension."""
    scanner.expect("[", "at the start of the dimensions of a sharding")
    dims: list[DimSharding] = []
    while not scanner.accept("]"):
        axes, closed = _axes(scanner, mesh, f"dimension {len(dims)}: ")
        priority = scanner.match(_PRIORITY)
        dims.append(DimSharding(axes, closed, int(priority.group(1)) if priority else 0))
        if scanner.accept("]"):
            break
        scanner.expect(",", "between dimensions")
    return tuple(dims)


def _check_overlap(scanner: Scanner, sharding: Sharding, start: int) -> None:
    taken: list[tuple[str, int, int, str]] = []
    groups = [(f"dimension {n}", d.axes) for n, d in enumerate(sharding.dims)]
    groups += [("the unreduced axes", sharding.unreduced), ("the replicated axes", sharding.replicated)]
    groups += [("the manual axes", tuple(AxisRef(n) for n in sharding.manual))]
    for place, axes in groups:
        for a in axes:
            low = 1 if a.is_full else a.pre
            high = low * a.extent(sharding.mesh)
            found = next((p for n, l, h, p in taken if n == a.name and low < h and l < high), None)
            if found is not None:
                both = f"in {found}" if found == place else f"in {found} and {place}"
                raise scanner.error(f"axis {a} is used twice in a sharding, {both}", at=start)
            taken.append((a.name, low, high, place))


def print_mesh(mesh: Mesh) -> str:
    """``mesh['x'=2,'y'=4]``, with ``device_ids=`` where they are not in order."""
    text = "mesh[" + ",".join(f"{_quote_name(n)}={s}" for n, s in mesh.axes) + "]"
    return text if mesh.device_ids is None else f"{text}, device_ids=({','.join(map(str, mesh.device_ids))})"


def print_mesh_sharding(sharding: Sharding) -> str:
    """A V3 sharding with its braces; priorities are left out, as XLA has no notation for them."""
    mesh = sharding.mesh
    if mesh.is_maximal:
        assert mesh.device_ids is not None
        return f"{{single_device[device_id={mesh.device_ids[0]}]}}"
    dims = ", ".join(_print_axes(d.axes, mesh, d.closed) for d in sharding.dims)
    text = f"{print_mesh(mesh)}, [{dims}]"
    if sharding.replicated:
        text += ", replicated=" + _print_axes(sharding.replicated, mesh)
    if sharding.unreduced:
        kind = "" if sharding.reduction == "sum" else sharding.reduction
        text += f", unreduced={kind}{_print_axes(sharding.unreduced, mesh)}"
    if sharding.manual:
        text += ", manual=" + _print_axes(tuple(AxisRef(n) for n in sharding.manual), mesh)
    return "{" + text + "}"


def _quote_name(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _print_axes(axes: tuple[AxisRef, ...], mesh: Mesh, closed: bool = True) -> str:
    items = [
        _quote_name(a.name) if a.is_full else f"{_quote_name(a.name)}:({a.pre}){a.size}" for a in merge_axes(axes, mesh)
    ]
    return "{" + ", ".join(items if closed else [*items, "?"]) + "}"


def merge_axes(axes: tuple[AxisRef, ...], mesh: Mesh) -> tuple[AxisRef, ...]:
    """The same order of devices with neighbouring parts of one axis joined; XLA takes no other form."""
    out: list[AxisRef] = []
    for a in axes:
        pre, size = a.pre, a.extent(mesh)
        if out and out[-1].name == a.name and out[-1].pre * out[-1].extent(mesh) == pre:
            last = out.pop()
            pre, size = last.pre, last.extent(mesh) * size
        if size > 1 or a.is_full:
            out.append(AxisRef(a.name) if size == mesh.axis_size(a.name) else AxisRef(a.name, pre, size))
    return tuple(out)
