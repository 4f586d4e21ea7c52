"""Writing StableHLO: the original MLIR with the shardings of a propagated module on its values."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.hlo.errors import AnnotationError
from shardc.hlo.ir import Instruction, Module
from shardc.hlo.mesh import Mesh
from shardc.hlo.sharding import AnySharding, AxisRef, Sharding
from shardc.hlo.stablehlo.child import attach_shardings, read_plain
from shardc.hlo.stablehlo.reader import convert

__all__ = ["sharding_text", "write_stablehlo"]


def write_stablehlo(data: bytes | str, module: Module) -> str:
    """MLIR text of ``data`` with an ``sdy.sharding`` on every value that ``module`` gives one.

    ``module`` is what `read_stablehlo` made of ``data``, after annotation and propagation: instructions are found
    again by name. The module's mesh replaces or joins the text's. Locations are kept. Raises as the reader does.
    """
    raw = data.encode() if isinstance(data, str) else data
    file = module.source_file
    plain = read_plain(raw, file)
    made: dict[int, tuple[str, ...]] = {}
    entry, _ = convert(plain, file, made)
    names = _MeshNames({n: Mesh(tuple(axes), tuple(ids) or None) for n, (axes, ids) in plain["meshes"].items()})
    known = {i.name: i for i in module.instructions()}
    request = {
        "values": _values(made, known, names),
        "functions": {entry: _signature(module, names)},
        "meshes": names.texts,
    }
    return attach_shardings(raw, request, file)


def sharding_text(sharding: Sharding, mesh_name: str) -> str:
    """Shardy's notation inside ``<...>``: ``<@mesh, [{"data"}, {?}], replicated={"model"}>``."""
    dims = []
    for d in sharding.dims:
        items = [_axis(a) for a in d.axes] + ([] if d.closed else ["?"])
        dims.append("{" + ", ".join(items) + "}" + (f"p{d.priority}" if d.priority else ""))
    text = f"@{mesh_name}, [{', '.join(dims)}]"
    for label, axes in (("replicated", sharding.replicated), ("unreduced", sharding.unreduced)):
        if axes:
            text += f", {label}={{{', '.join(_axis(a) for a in axes)}}}"
    return f"<{text}>"


def _axis(axis: AxisRef) -> str:
    return f'"{axis.name}"' + ("" if axis.is_full else f":({axis.pre}){axis.size}")


class _MeshNames:
    """Names of meshes in the text; a mesh that the text lacks gets one, or takes over its namesake."""

    def __init__(self, known: Mapping[str, Mesh]) -> None:
        self.known = dict(known)
        self.texts: dict[str, str] = {}

    def __call__(self, mesh: Mesh) -> str:
        for name, candidate in self.known.items():
            if candidate == mesh:
                return name
        name = mesh.name or "mesh"
        if name in self.texts:
            raise AnnotationError(f"two meshes called {name} in one module")
        self.known[name] = mesh
        axes = ", ".join(f'"{n}"={s}' for n, s in mesh.axes)
        ids = "" if mesh.device_ids is None else ", device_ids=[" + ", ".join(map(str, mesh.device_ids)) + "]"
        self.texts[name] = f"<[{axes}]{ids}>"
        return name


def _leaves(sharding: AnySharding, count: int) -> tuple[Sharding | None, ...]:
    given = sharding if isinstance(sharding, tuple) else (sharding,) * count
    return tuple(s if isinstance(s, Sharding) else None for s in given)


def _values(made: Mapping[int, tuple[str, ...]], known: Mapping[str, Instruction], names: _MeshNames) -> dict[int, str]:
    out = {}
    for first, instructions in made.items():
        found = [known.get(n) for n in instructions]
        shardings = [i.sharding if i is not None else None for i in found]
        if shardings and all(isinstance(s, Sharding) for s in shardings):
            texts = [sharding_text(s, names(s.mesh)) for s in shardings if isinstance(s, Sharding)]
            out[first] = f"#sdy.sharding_per_value<[{', '.join(texts)}]>"
    return out


def _signature(module: Module, names: _MeshNames) -> tuple[tuple[str, ...], tuple[str, ...]]:
    def text(sharding: Sharding | None) -> str:
        return "" if sharding is None else f"#sdy.sharding{sharding_text(sharding, names(sharding.mesh))}"

    arguments = [_leaves(p.sharding, 1)[0] for p in module.parameters]
    results = _leaves(module.entry.root.sharding, len(module.results))
    return tuple(text(s) for s in arguments), tuple(text(s) for s in results)
