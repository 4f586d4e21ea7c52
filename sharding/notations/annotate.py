"""Annotations by name: ``annotate(module, {"w1": P(None, "model"), "layers.*": "None,model"}, mesh)``.

Names are looked up exactly first, then as globs; arguments before results before values inside the program (by
instruction name, then by op name), those of the entry before those of loops, branches and called functions. Values
inside have names by the source, too (`shardc.sharding.notations.source_names`), and get a constraint behind them, as
`jax.lax.with_sharding_constraint` makes one. On the way an annotation is checked: axis, rank and dimension errors name
the value.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shardc.hlo.errors import AnnotationError, InputError, Location
from shardc.hlo.files import near_files
from shardc.hlo.ir.build import make_instruction, reachable_computations
from shardc.hlo.ir.custom_calls import is_constraint
from shardc.hlo.ir.ir import (
    Computation,
    Instruction,
    Module,
    flow_computations,
    rebuild_computation,
    rebuild_computations,
    rebuild_module,
    users_of,
)
from shardc.hlo.ir.mesh import NO_NAMES, Mesh
from shardc.hlo.ir.sharding import AnySharding, AxisRef, DimSharding, Sharding
from shardc.hlo.ir.types import Shape
from shardc.hlo.units import count_text, kind_text
from shardc.sharding.axes.sub_axes import check_axes
from shardc.sharding.notations.names import has_character_class, is_glob, match_names, near_names
from shardc.sharding.notations.partition_spec import as_spec, spec_to_sharding
from shardc.sharding.notations.resize_mesh import resize_mesh
from shardc.sharding.notations.source_names import SourceName, parse_source_name, source_name
from shardc.sharding.notations.tile_assignments import convert_to_axes

__all__ = [
    "AnnotationFile",
    "Nameable",
    "annotate",
    "nameable",
    "named_axes",
    "named_results",
    "parse_spec",
    "read_annotations",
    "read_toml",
    "resize_mesh",
    "result_names",
    "spec_text",
    "with_shardings",
]


@dataclass(frozen=True, slots=True)
class AnnotationFile:
    """What an annotations file holds: a mesh, or None, and specs by name."""

    mesh: Mesh | None
    specs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Nameable:
    """A value that can be annotated: an argument, a result leaf, or an instruction's only leaf.

    ``kind`` is ``argument``, ``result`` or ``value``; ``leaf`` counts the leaves of the ``instruction``.
    """

    kind: str
    name: str
    shape: Shape
    instruction: Instruction
    leaf: int = 0


def annotate(module: Module, annotations: Mapping[str, Any], mesh: Mesh | None = None) -> Module:
    """A module with shardings on the named values, replacing those they had.

    Values are ``P``, JAX's PartitionSpec, a `Sharding`, or text as on the command line (`parse_spec`). With ``mesh``
    a program that has no mesh gets it; one that has its own is resized (`resize_mesh`). Raises `AnnotationError` for
    a name that matches nothing or several values, an unknown or repeated axis, a wrong rank.
    """
    if not isinstance(annotations, Mapping):
        raise AnnotationError(
            f"annotations are given as {kind_text(annotations)}",
            fix='give a dictionary of specs by name: {"x": P("data", None)}',
        )
    module = convert_to_axes(module) if _has_shardings(module) else module
    if mesh is not None:
        module = resize_mesh(module, mesh) if module.mesh is not None else module.with_(mesh=mesh)
    target = module.mesh
    if target is None:
        raise AnnotationError(
            "annotations need a mesh",
            fix='give one: mesh={"data": 2, "model": 4} in Python, --mesh data=2,model=4 on the command line',
        )
    tables = nameable(module)
    wanted: dict[tuple[Instruction, int], Sharding] = {}
    for name, spec in annotations.items():
        for value in _lookup(name, tables):
            wanted[value.instruction, value.leaf] = _sharding(spec, target, value)
    module = rebuild_computations(module, lambda c, called: _put_shardings(c, wanted, called))
    partitions = max(target.size, module.num_partitions if module.mesh is None else 1)
    needed = reachable_computations(module.entry)  # calls that nobody reads are gone
    return module.with_(computations=needed, mesh=target, num_partitions=partitions)


def with_shardings(
    module: Module,
    found: Mapping[Instruction, Sharding],
    results: Sequence[Sharding | None] = (),
    *,
    copied: bool = False,
) -> Module:
    """``module`` with shardings of instructions of its entry that are no tuples, and of its flattened results.

    None leaves a result as it is. With ``copied``, results are copies, whose layout nothing else decides.
    """
    root = module.entry.root
    ends = {n: s for n, s in enumerate(results) if s is not None}

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old in found:
            return old.replace(operands=operands, sharding=found[old])
        if old is not root or not (ends or copied):
            return None
        made = tuple(make_instruction("copy", o) for o in operands) if copied else operands
        sharding = _merge_shardings(old, len(operands), ends) if ends else old.sharding
        return old.replace(operands=made, sharding=sharding)

    return rebuild_module(module, change)


def parse_spec(text: str, mesh: Mesh, shape: Shape, where: str = "") -> Sharding:
    """The sharding that command line text means: one item per dimension, separated by commas.

    ``None`` (or nothing) closes a dimension, ``?`` leaves it open, ``a+b`` splits it over two axes, a major, and
    ``a+?`` over a at least. Example: ``data+model,None`` for a matrix.
    """
    items = [t.strip() for t in text.split(",")] if text.strip() else []
    if not {p.strip() for item in items for p in item.split("+")} <= {*NO_NAMES, *mesh.axis_names}:
        _check_notation(text, where)
    if len(items) > shape.rank:
        raise AnnotationError(
            f"{text!r} has {count_text(len(items), 'entry', 'entries')}, but the value is {shape}",
            where=where or None,
            fix="give at most one entry per dimension",
        )
    dims = [_parse_dim(item) for item in items] + [DimSharding()] * (shape.rank - len(items))
    sharding = Sharding(mesh, tuple(dims))
    check_axes(sharding, where)
    return sharding


def _check_notation(text: str, where: str) -> None:
    """Raise `AnnotationError` for notations of shardings that are not the command line's."""
    if python := _PYTHON.fullmatch(text):
        raise AnnotationError(
            f"{text!r} uses Python's notation",
            where=where or None,
            fix=f"as text write {_plain(python[1])}; in Python, P(...) without quotes",
        )
    if _PRINTED.fullmatch(text):
        raise AnnotationError(
            f"{text!r} is how shardings are printed",
            where=where or None,
            fix=f"write an entry per dimension, separated by commas: {_as_spec(text)}",
        )
    if _TILES.match(text):
        raise AnnotationError(
            f"{text!r} is a tile assignment", where=where or None, fix="write an entry per dimension: data,None"
        )
    if unmatched := next((a for a, b in ("[]", "{}", "()") if text.count(a) != text.count(b)), ""):
        raise AnnotationError(
            f"{text!r} has an unmatched {unmatched!r}",
            where=where or None,
            fix="write an entry per dimension: data,None",
        )
    if "'" in text or '"' in text or _GROUPED.search(text):
        raise AnnotationError(
            f"{text!r} has quotation marks or parentheses around names of axes",
            where=where or None,
            fix=f"on the command line write {_without_quotes(text)}",
        )
    if odd := _SEPARATED.search(text):
        raise AnnotationError(
            f"{text!r} has {odd[1]!r} between two entries",
            where=where or None,
            fix=f"separate entries by commas: {','.join(t for t in _SEPARATORS.split(text) if t)}",
        )


#: ``P(None, 'model')`` and its long name.
_PYTHON = re.compile(r"\s*(?:jax\.sharding\.|shardc\.)?(?:P|PartitionSpec)\((.*)\)\s*")

#: ``[{data}, {}]``, and what people put in place of a comma.
_PRINTED = re.compile(r"\s*\[(\s*\{[^{}]*\}\s*,?)*\s*\]\s*")
#: ``{devices=[2,1]<=[2]}``, and ``(data, model)``, but not ``data:(2)2``.
_TILES = re.compile(r"\s*\{\s*(devices|maximal|replicated|manual|unknown)\b")
_GROUPED = re.compile(r"\(([^()]*,[^()]*)\)")
_SEPARATED = re.compile(r"\w\s*([;|\s])\s*\w")
_SEPARATORS = re.compile(r"[,;|\s]+")


def _as_spec(printed: str) -> str:
    """``[{"data", model}, {}, {?}]`` as ``data+model,None,?``."""
    return ",".join(dim.replace(",", "+") or "None" for dim in re.findall(r"\{([^{}]*)\}", _bare(printed)))


def _without_quotes(text: str) -> str:
    """``('data', 'model'), None`` as ``data+model,None``."""
    return _GROUPED.sub(lambda group: group[1].strip(",").replace(",", "+"), _bare(text))


def _bare(text: str) -> str:
    return re.sub(r"['\"\s]", "", text)


def _plain(entries: str) -> str:
    """The entries of a PartitionSpec as the command line has them: ``None,model``, ``data+model``."""
    try:
        given = ast.literal_eval(f"({entries},)") if entries.strip() else (None,)
    except (SyntaxError, ValueError):
        return _bare(entries)
    return ",".join("+".join(map(str, e)) if isinstance(e, tuple | list) else str(e) for e in given)


def _parse_dim(item: str) -> DimSharding:
    if item in ("", "None", "none"):
        return DimSharding()
    parts = [p.strip() for p in item.split("+")]
    if "" in parts:
        raise AnnotationError(f"an axis is missing in {item!r}", fix="join names of axes by +, such as data+model")
    return DimSharding(tuple(_parse_axis(p) for p in parts if p != "?"), closed="?" not in parts)


def _parse_axis(text: str) -> AxisRef:
    """``x`` or ``x:(pre)size``."""
    name, found, rest = text.partition(":(")
    pre, _, size = rest.partition(")")
    if found and pre.isdigit() and size.isdigit():
        return AxisRef(name, int(pre), int(size))
    return AxisRef(text)


def named_axes(specs: Iterable[str]) -> tuple[str, ...]:
    """The axes that specs speak of, as text has them, in the order in which they come up."""
    dims = (_parse_dim(item.strip()) for spec in specs for item in spec.split(","))
    return tuple(dict.fromkeys(axis.name for dim in dims for axis in dim.axes))


def read_annotations(path: str | Path) -> AnnotationFile:
    """An annotations file: a table ``[mesh]`` of axis sizes (may be left out) and ``[annotate]`` of specs by name.

    Example::

        [mesh]
        data = 2
        model = 4
        [annotate]
        "state['w1']" = "None,model"
        x = "data"

    Raises `InputError` for a file that cannot be read or is not TOML, `AnnotationError` for wrong contents.
    """
    where = Location(str(path))
    data = read_toml(path)
    unknown = sorted(set(data) - {"mesh", "annotate"})
    axes, specs = data.get("mesh", {}), data.get("annotate", {})
    if unknown or not isinstance(axes, dict) or not isinstance(specs, dict):
        what = f"unknown table {unknown[0]!r}" if unknown else "mesh and annotate must be tables"
        raise AnnotationError(what, where=where, fix="use the tables [mesh] and [annotate]")
    if not all(isinstance(n, int) and not isinstance(n, bool) for n in axes.values()):
        raise AnnotationError("axis sizes must be whole numbers", where=where, fix="write data = 2")
    return AnnotationFile(Mesh(axes) if axes else None, {n: spec_text(n, s, where) for n, s in specs.items()})


def read_toml(path: str | Path) -> dict[str, Any]:
    """An annotations file's tables; `InputError` for a file that cannot be read or is not TOML."""
    where = Location(str(path))
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as e:
        fix = near_files(Path(path))
        raise InputError(f"cannot read the annotations file: {e.strerror}", where=where, fix=fix) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        fix = 'write tables of TOML: [mesh] with data = 2, [annotate] with x = "data,None"'
        raise InputError(f"not a TOML file: {e}", where=where, fix=fix) from None


def spec_text(name: str, spec: object, where: Location) -> str:
    """The spec of the value ``name`` as text, which a file may also hold as a list, an entry per dimension."""
    if isinstance(spec, str):
        return spec
    if isinstance(spec, list) and all(isinstance(s, str) for s in spec):
        return ",".join(spec)
    raise AnnotationError(
        f"the spec of {name!r} is {spec!r}", where=where, fix='write it as text, for example "None,model"'
    )


def result_names(module: Module) -> list[str]:
    """The name of each result: its own, or ``out`` and its number."""
    given = module.result_names
    return [(given[n] if n < len(given) else "") or f"out{n}" for n in range(len(module.results))]


def named_results(module: Module) -> list[tuple[str, Instruction]]:
    """The results that an instruction of the entry gives by itself, by name."""
    root = module.entry.root
    ends = root.operands if root.opcode == "tuple" else (root,)
    return list(zip(result_names(module), ends, strict=False))


def nameable(module: Module) -> list[list[Nameable]]:
    """What annotations can name, in order of precedence: arguments, results, then values inside by instruction name and
    by op name, those of the entry before those of loops, branches and called functions."""
    arguments = []
    for n, p in enumerate(module.parameters):
        given = module.arg_names[n] if n < len(module.arg_names) else ""
        arguments += [Nameable("argument", k, p.shape, p) for k in dict.fromkeys((given or f"arg{n}", p.name))]
    root = module.entry.root
    names = result_names(module)
    results = [Nameable("result", names[n], shape, root, n) for n, shape in enumerate(module.results)]
    tables = [arguments, results]
    for computations in ((module.entry,), _flow(module)):
        inside = [i for c in computations for i in c if i.opcode != "parameter" and not i.shape.is_tuple]
        tables.append([Nameable("value", i.name, i.shape, i) for i in inside])
        named = [i for i in inside if i.metadata and i.metadata.op_name]
        tables.append([Nameable("value", i.metadata.op_name, i.shape, i) for i in named if i.metadata])
    return tables


def _flow(module: Module) -> list[Computation]:
    """Loops, branches and called functions: what propagation goes through, but for the entry."""
    found = {module.entry: None}
    for computation in reversed(module.computations):
        if computation in found:
            found |= {k: None for i in computation for k in flow_computations(i)}
    return [c for c in module.computations if c in found and c is not module.entry]


def _lookup(name: str, tables: Sequence[Sequence[Nameable]]) -> list[Nameable]:
    """The values that ``name`` means: the exact name wherever it is, else a glob over the first table it matches."""
    for table in tables:
        exact = [v for v in table if v.name == name]
        if len({(v.instruction, v.leaf) for v in exact}) > 1:
            kinds = ", ".join(f"%{v.instruction.name} {v.shape}" for v in exact[:5])
            raise AnnotationError(
                f"the name {name!r} is ambiguous: {len(exact)} values have it ({kinds})",
                fix="use the instruction's own name",
            )
        if exact:
            return exact[:1]
    source = parse_source_name(name)
    if source is not None and (found := _made_at(source, tables)):
        return found
    for table in tables:
        names = set(match_names(name, (v.name for v in table)))
        if names:
            return [v for v in table if v.name in names]
    everything = [v.name for table in tables for v in table]
    # Arguments with a name of their own are also known by their instruction's, which no list needs.
    own = {v.instruction for table in tables for v in table if v.kind == "argument" and v.name != v.instruction.name}
    listed = [v.name for table in tables for v in table if v.instruction not in own or v.name != v.instruction.name]
    if source is not None:
        everything = [n for table in tables for v in table if v.kind == "value" and (n := source_name(v.instruction))]
        listed = everything
    fix = near_names(name, everything, listed)
    quoted = re.sub(r"\[([A-Za-z_]\w*)\]", r"['\1']", name)
    if quoted != name and quoted in everything:
        fix = f'did you mean {quoted}? In a shell, put the whole option in double quotes: "{quoted}=..."'
    elif "[" in name and (is_glob(name) or has_character_class(name, everything)):
        fix = f"brackets match literally: give a pattern for each character in them; {fix}"
    raise AnnotationError(f"no argument, result or value is named {name!r}", fix=fix)


def _made_at(source: SourceName, tables: Sequence[Sequence[Nameable]]) -> list[Nameable]:
    """What the place of the source makes, each value once."""
    return list(
        {v.instruction: v for t in tables for v in t if v.kind == "value" and source.means(v.instruction)}.values()
    )


def _sharding(spec: Any, mesh: Mesh, value: Nameable) -> Sharding:
    source = value.instruction.source
    where = f"{value.kind} {value.name}" + (f" ({source})" if source else "")
    if not value.shape.is_array:
        raise AnnotationError(f"{value.name!r} is a {value.shape}, not an array", where=where)
    if isinstance(spec, str):
        return parse_spec(spec, mesh, value.shape, where)
    if isinstance(spec, Sharding):
        if spec.rank != value.shape.rank:
            what = f"sharding {spec} has {count_text(spec.rank, 'dimension')}, but the value is {value.shape}"
            raise AnnotationError(what, where=where, fix="give one entry per dimension")
        if spec.mesh != mesh:
            what = f"sharding {spec} is over the mesh {spec.mesh}, but the program's mesh is {mesh}"
            raise AnnotationError(what, where=where, fix="use one mesh for the program and its annotations")
        check_axes(spec, where)
        return spec
    return spec_to_sharding(as_spec(spec, where), mesh, value.shape.rank, where)


def _put_shardings(
    computation: Computation,
    wanted: Mapping[tuple[Instruction, int], Sharding],
    called: Mapping[Computation, Computation],
) -> Computation:
    marked = {i for i, _ in wanted}
    inside = {i for i in marked if i.opcode != "parameter" and not i.shape.is_tuple and not is_constraint(i)}
    users = users_of(computation) if inside else {}
    # The sharding constraint that alone reads a value inside of the program says what is wanted.
    alone = {i: users[i][0] for i in inside - {computation.root} if len(users.get(i, ())) == 1}
    constrained = {i: c for i, c in alone.items() if is_constraint(c)}
    given = {c: wanted[i, 0] for i, c in constrained.items()}

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old in given:
            return old.replace(operands=operands, sharding=given[old])
        if old not in marked or old in constrained:
            return None
        if old in inside:
            return _constrain(old.replace(operands=operands), wanted[old, 0])
        leaves = len(list(old.shape.leaves()))
        mine = {n: wanted[old, n] for n in range(leaves) if (old, n) in wanted}
        return old.replace(operands=operands, sharding=_merge_shardings(old, leaves, mine))

    return rebuild_computation(computation, change, called)


def _constrain(value: Instruction, sharding: Sharding) -> Instruction:
    """A constraint behind the value, as `jax.lax.with_sharding_constraint` around its expression makes one."""
    metadata = None if value.metadata is None else replace(value.metadata, op_name="")
    attrs = {"custom_call_target": "Sharding"}
    name = f"{value.name}.constraint"
    return Instruction("custom-call", value.shape, (value,), attrs, name=name, sharding=sharding, metadata=metadata)


def _merge_shardings(i: Instruction, leaves: int, mine: Mapping[int, Sharding]) -> AnySharding:
    if not i.shape.is_tuple:
        return mine[0]
    old = i.sharding if isinstance(i.sharding, tuple) else (i.sharding,) * leaves
    return tuple(mine.get(n, old[n]) for n in range(leaves))


def _has_shardings(module: Module) -> bool:
    return any(i.sharding is not None for i in module.instructions())
