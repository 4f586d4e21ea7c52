"""Writing StableHLO: the original MLIR with the shardings of a propagated module on its values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from shardc.hlo.errors import AnnotationError
from shardc.hlo.ir.build import uncalled_computations
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AnySharding, AxisRef, Sharding
from shardc.hlo.stablehlo.child import attach_shardings, read_plain
from shardc.hlo.stablehlo.entry import EntryFunction
from shardc.hlo.stablehlo.reader import convert
from shardc.hlo.text.attributes import quote

__all__ = ["FunctionVersion", "sharding_request", "sharding_text", "write_stablehlo"]


def write_stablehlo(data: bytes | str, module: Module, versions: Sequence[FunctionVersion] = ()) -> str:
    """MLIR text of ``data`` with an ``sdy.sharding`` on every value that ``module`` gives one.

    A function whose callers see it differently is there once per ``versions``.

    ``module`` is what `read_stablehlo` made of ``data``, after annotation and propagation: instructions are found
    again by name. The module's mesh replaces or joins the text's. Locations are kept. Raises as the reader does.
    """
    raw = data.encode() if isinstance(data, str) else data
    file = module.source_file
    return attach_shardings(raw, sharding_request(read_plain(raw, file), module, versions=versions), file)


@dataclass(frozen=True, slots=True)
class FunctionVersion:
    """A function as some of its callers see it: ``source`` is its name in the program, ``shardings`` are by name of
    the instructions that it became, ``callees`` gives the versions that its calls are of, by the calls' names.
    ``before`` are the reshards of a call's operands (None where there is none) by the call's name, ``behind`` those
    of results by the name of the instruction that they follow. ``reduced`` says, by the name of a reshard, how its
    operand lies once it is reduced over the axes over which it is partial. ``public`` functions keep their name."""

    name: str
    source: str
    arguments: tuple[Sharding | None, ...]
    results: tuple[Sharding | None, ...]
    shardings: Mapping[str, AnySharding]
    callees: Mapping[str, str]
    before: Mapping[str, tuple[Sharding | None, ...]] = field(default_factory=dict)
    behind: Mapping[str, Sharding] = field(default_factory=dict)
    reduced: Mapping[str, tuple[tuple[AxisRef, ...], Sharding]] = field(default_factory=dict)
    public: bool = False


def sharding_request(
    plain: dict[str, Any],
    module: Module,
    *,
    closed: bool = True,
    versions: Sequence[FunctionVersion] = (),
    inserted: Mapping[str, Sharding] = MappingProxyType({}),
    as_reshards: bool = False,
    rules: Mapping[str, str] | None = None,
    every_function: bool = False,
) -> dict[str, Any]:
    """What `mlir.attach` needs: the shardings of ``module`` by place in the plain form that it was made of.

    Results without a sharding next to others that have one are written as replicated, ``closed`` or open.
    ``versions`` replace the functions that the entry calls; the first is the entry itself. ``inserted`` are new
    constraints by the name of the instruction that they follow. With ``as_reshards``
    constraints become reshards. ``rules`` are factor rules by instruction, to stand in place of those in the program;
    None leaves them as they are. ``every_function`` is what the module was read with.
    """
    op_names: dict[int, tuple[str, ...]] = {}
    _, entry, _ = convert(plain, module.source_file, op_names, every_function=every_function)
    names = _MeshNames({n: Mesh(tuple(axes), tuple(ids) or None) for n, (axes, ids) in plain["meshes"].items()})
    known = {i.name: i for i in module.instructions()}
    signature = _signature(module, entry, names)
    numbers = _numbers(op_names, known.values())
    blocks = {f[0]: f[4][0] for f in plain["functions"] if f[4]}
    numbers |= {p.name: blocks[entry.name][0][n] for p, n in zip(module.parameters, entry.arguments, strict=True)}
    for name, c in _others(module).items():
        if name in blocks:
            numbers |= {p.name: n for p, n in zip(c.parameters, blocks[name][0], strict=True)}
    written = []
    for v in versions:
        own = {n: known[n].replace(sharding=s) for n, s in v.shardings.items() if n in known}
        written.append({"values": _values(op_names, own, names, closed), **_version(v, numbers, names)})
    if written:
        written[0]["signature"] = signature
    return {
        "values": _values(op_names, known, names, closed),
        "functions": {**_callee_signatures(module, names), entry.name: signature},
        "versions": written,
        "inserted": {numbers[n]: sharding_text(s, names(s.mesh)) for n, s in inserted.items() if n in numbers},
        "as_reshards": as_reshards,
        "rules": None if rules is None else {numbers[n]: text for n, text in rules.items() if n in numbers},
        "meshes": names.texts,
        "devices": module.mesh.size if module.mesh is not None else 0,
    }


def _numbers(op_names: Mapping[int, tuple[str, ...]], known: Iterable[Instruction]) -> dict[str, int]:
    """Numbers of values in the plain form by instruction; a call with several results has that of its first."""
    numbers = {n: number for first, names in op_names.items() for number, n in enumerate(names, first)}
    for i in known:
        if i.opcode == "get-tuple-element" and i.name in numbers and i.operands[0].opcode == "call":
            numbers[i.operands[0].name] = numbers[i.name] - i.attrs["index"]
    return numbers


def _version(v: FunctionVersion, numbers: Mapping[str, int], names: _MeshNames) -> dict[str, Any]:
    """A function version as `mlir.attach` takes it, but for the shardings of its values."""

    def text(s: Sharding | None) -> str:
        return "" if s is None else sharding_text(s, names(s.mesh))

    arguments, results = dict(enumerate(v.arguments)), dict(enumerate(v.results))
    return {
        "name": v.name,
        "source": v.source,
        "public": v.public,
        "before": {numbers[n]: tuple(map(text, wanted)) for n, wanted in v.before.items() if n in numbers},
        "reduced": {numbers[n]: (", ".join(map(_axis, axes)), text(s)) for n, (axes, s) in v.reduced.items()},
        "behind": {numbers[n]: text(s) for n, s in v.behind.items()},
        "callees": {numbers[n]: callee for n, callee in v.callees.items() if n in numbers},
        "signature": (_texts(arguments, names), _texts(results, names)),
    }


def sharding_text(sharding: Sharding, mesh_name: str) -> str:
    """Shardy's notation inside ``<...>``: ``<@mesh, [{"data"}, {?}], replicated={"model"}>``."""
    dims = []
    for d in () if sharding.mesh.is_maximal else sharding.dims:
        items = [_axis(a) for a in d.axes] + ([] if d.closed else ["?"])
        dims.append("{" + ", ".join(items) + "}" + (f"p{d.priority}" if d.priority else ""))
    text = f"@{mesh_name}, [{', '.join(dims)}]"
    kind = "" if sharding.reduction == "sum" else sharding.reduction
    for label, axes in (("replicated=", sharding.replicated), (f"unreduced={kind}", sharding.unreduced)):
        if axes:
            text += f", {label}{{{', '.join(_axis(a) for a in axes)}}}"
    return f"<{text}>"


def _axis(axis: AxisRef) -> str:
    return quote(axis.name) + ("" if axis.is_full else f":({axis.pre}){axis.size}")


class _MeshNames:
    """Names of meshes in the text; a mesh that the text lacks gets one, or takes over its namesake."""

    def __init__(self, known: Mapping[str, Mesh]) -> None:
        self.known = dict(known)
        self.texts: dict[str, str] = {}

    def __call__(self, mesh: Mesh) -> str:
        for name in (mesh.name, *self.known):
            if self.known.get(name) == mesh:
                return name
        name = mesh.name or "mesh"
        if name in self.texts:
            raise AnnotationError(f"two meshes of the module are called {name}")
        self.known[name] = mesh
        axes = ", ".join(f"{quote(n)}={s}" for n, s in mesh.axes)
        ids = "" if mesh.device_ids is None else ", device_ids=[" + ", ".join(map(str, mesh.device_ids)) + "]"
        self.texts[name] = f"<[{axes}]{ids}>"
        return name


def _leaves(sharding: AnySharding, count: int) -> tuple[Sharding | None, ...]:
    given = sharding if isinstance(sharding, tuple) else (sharding,) * count
    return tuple(s if isinstance(s, Sharding) else None for s in given)


def _values(
    op_names: Mapping[int, tuple[str, ...]], known: Mapping[str, Instruction], names: _MeshNames, closed: bool
) -> dict[int, tuple[str, ...]]:
    out = {}
    for first, instructions in op_names.items():
        found = [known.get(n) for n in instructions]
        shardings = [i.sharding if i is not None else None for i in found]
        meshes = [s.mesh for s in shardings if isinstance(s, Sharding)]
        if meshes and None not in found and not any(isinstance(s, tuple) for s in shardings):
            shapes = [i.shape for i in found if i is not None]
            plain = [Sharding.replicate(meshes[0], len(s.dims), closed=closed) for s in shapes]
            given = [s if isinstance(s, Sharding) else p for s, p in zip(shardings, plain, strict=True)]
            out[first] = tuple(sharding_text(s, names(s.mesh)) for s in given)
    return out


def _signature(module: Module, entry: EntryFunction, names: _MeshNames) -> tuple[dict[int, str], dict[int, str]]:
    """Attribute texts by position of the function's arguments and results."""
    arguments = (_leaves(p.sharding, 1)[0] for p in module.parameters)
    results = _leaves(module.entry.root.sharding, len(module.results))
    return (
        _texts(dict(zip(entry.arguments, arguments, strict=True)), names),
        _texts(dict(zip(entry.results, results, strict=True)), names),
    )


def _callee_signatures(module: Module, names: _MeshNames) -> dict[str, tuple[dict[int, str], dict[int, str]]]:
    """What called functions' arguments have."""
    out: dict[str, tuple[dict[int, str], dict[int, str]]] = {}
    for name, c in _others(module).items():
        arguments = _texts(dict(enumerate(_leaves(p.sharding, 1)[0] for p in c.parameters)), names)
        if arguments:
            out[name] = arguments, {}
    return out


def _others(module: Module) -> dict[str, Computation]:
    """The functions besides the entry, by their names in the text."""
    called = [i.attrs["to_apply"] for i in module.instructions() if i.opcode == "call"]
    return {c.name.rpartition(".")[0]: c for c in (*called, *uncalled_computations(module))}


def _texts(shardings: Mapping[int, Sharding | None], names: _MeshNames) -> dict[int, str]:
    return {k: f"#sdy.sharding{sharding_text(s, names(s.mesh))}" for k, s in shardings.items() if s is not None}
