"""Shardy's own notation, as MLIR and frontend attributes write it: ``#sdy.sharding<@mesh, [{"x"}, {?}]>``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from shardc.hlo.errors import AnnotationError
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.text.notations.named_mesh import parse_dims, parse_parts
from shardc.hlo.text.scanner import STRING, Scanner, unquote

__all__ = ["parse_sdy_meshes", "parse_sdy_names", "parse_sdy_shardings"]

_MESH_NAME = re.compile(r'\s*@?"?([\w.\-]+)"?\s*=')
_MESH = re.compile(r"\s*(?:#sdy\.)?(?:mesh)?\s*<\s*\[")
_DEVICE_IDS = re.compile(r"\s*,\s*device_ids\s*=\s*\[\s*([\d,\s]*)\]")
_NUMBER = re.compile(r"\s*(\d+)")
_SHARDINGS = re.compile(r"\s*(?:#sdy\.)?(sharding_per_value|sharding)\s*")
_MESH_REFERENCE = re.compile(r'\s*@(?:"([^"]*)"|([\w.$\-]+))')


def parse_sdy_meshes(text: str) -> dict[str, Mesh]:
    """``{mesh = #sdy.mesh<["x"=2, "y"=4]>, other = #sdy.mesh<[], device_ids=[3]>}`` by name."""
    scanner = Scanner(text)
    scanner.expect("{", "at the start of the meshes")
    meshes: dict[str, Mesh] = {}
    while not scanner.accept("}"):
        name = scanner.take(_MESH_NAME, "the name of a mesh and '='").group(1)
        meshes[name] = _mesh(scanner, name)
        if scanner.accept("}"):
            break
        scanner.expect(",", "between meshes")
    return meshes


def _mesh(scanner: Scanner, name: str = "mesh") -> Mesh:
    start = scanner.pos
    scanner.take(_MESH, '#sdy.mesh<["axis"=size, ...]>')
    axes: list[tuple[str, int]] = []
    while not scanner.accept("]"):
        axis = unquote(scanner.take(_AXIS, "a quoted axis name").group(1))
        scanner.expect("=", "after a mesh axis")
        axes.append((axis, int(scanner.take(_NUMBER, "the size of a mesh axis").group(1))))
        scanner.accept(",")
    found = scanner.match(_DEVICE_IDS)
    scanner.expect(">", "at the end of a mesh")
    ids = tuple(int(d) for d in found.group(1).split(",") if d.strip()) if found is not None else None
    try:
        return Mesh(tuple(axes), ids, name=name)
    except AnnotationError as e:
        raise scanner.error(e.what, at=start, fix=e.fix) from None


_AXIS = re.compile(rf"\s*({STRING.pattern})", re.S)


def parse_sdy_shardings(text: str, meshes: Mapping[str, Mesh]) -> tuple[Sharding, ...]:
    """The shardings of ``#sdy.sharding<...>`` (one) or ``#sdy.sharding_per_value<[<...>, ...]>``."""
    scanner = Scanner(text)
    kind = scanner.take(_SHARDINGS, "#sdy.sharding<...> or #sdy.sharding_per_value<[...]>").group(1)
    if kind == "sharding":
        return (_sharding(scanner, meshes),)
    scanner.expect("<", "after sharding_per_value")
    scanner.expect("[", "after sharding_per_value<")
    out: list[Sharding] = []
    while not scanner.accept("]"):
        out.append(_sharding(scanner, meshes))
        scanner.accept(",")
    scanner.expect(">", "at the end of shardings")
    return tuple(out)


def _sharding(scanner: Scanner, meshes: Mapping[str, Mesh]) -> Sharding:
    scanner.expect("<", "at the start of a sharding")
    start = scanner.pos
    found = scanner.match(_MESH_REFERENCE)
    if found is None:
        mesh = _mesh(scanner)
    else:
        name = found.group(1) or found.group(2)
        if name not in meshes:
            known = ", ".join(meshes) or "none"
            raise scanner.error(f"there is no mesh @{name}", at=start, fix=f"the meshes are {known}")
        mesh = meshes[name]
    scanner.expect(",", "after the mesh of a sharding")
    dims = parse_dims(scanner, mesh)
    parts, reduction = parse_parts(scanner, mesh, ">")
    return Sharding(mesh, dims, parts["replicated"], parts["unreduced"], reduction)


def parse_sdy_names(text: str) -> tuple[str, ...]:
    """The quoted names in a list such as ``#sdy<manual_axes{"x", "y"}>``; without quotes, names between commas."""
    quoted = [unquote(m.group()) for m in STRING.finditer(text)]
    return tuple(quoted) if '"' in text else tuple(n for n in text.split(",") if n)
