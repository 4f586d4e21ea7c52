"""The verifier, which checks that a module keeps the rules of the language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, NoReturn

from shardc.hlo.errors import UnsupportedError, VerificationError
from shardc.hlo.ir.groups import AxisGroups, AxisPairs, IotaGroups, ListGroups, ListPairs
from shardc.hlo.ir.infer import RULES
from shardc.hlo.ir.infer.rule import RuleError, shapes_agree
from shardc.hlo.ir.ir import Computation, Instruction, Module, called_computations
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.opset import OPS, ConvDims, Window
from shardc.hlo.ir.types import UNBOUNDED, Shape
from shardc.hlo.units import count_text

__all__ = ["verify", "verify_computation"]


def verify(module: Module) -> None:
    """Check a whole module; the first broken rule is raised as a `VerificationError`.

    Checked are: computations come callees first and end with the entry; operands are defined earlier in the same
    computation; arity and attributes fit the op set; shapes agree with shape inference (layouts aside);
    parameters count from 0; called computations fit their calls; device ids of collectives exist; donated and
    aliased parameters exist. Names may repeat. The error names the instruction, the dimension and the source line.
    """
    if module.entry not in module.computations:
        raise VerificationError(f"entry computation %{module.entry.name} is not in the module", where=_header(module))
    if module.computations[-1] is not module.entry:
        raise VerificationError(f"entry computation %{module.entry.name} does not come last", where=_header(module))
    seen: set[Computation] = set()
    for computation in module.computations:
        for i in computation:
            for role, callee in called_computations(i):
                if callee not in seen:
                    _fail(i, f"{role} %{callee.name} does not come before %{computation.name} in the module")
        verify_computation(computation)
        _verify_devices(module, computation)
        seen.add(computation)
    _verify_parameters_of_entry(module)


def verify_computation(computation: Computation) -> None:
    """Check one computation, not the ones it calls; raises `VerificationError`."""
    seen: set[Instruction] = set()
    for i in computation:
        for k, o in enumerate(i.operands):
            if o not in seen:
                _fail(i, f"operand {k}, %{o.name}, is not defined earlier in %{computation.name}")
        _verify_written_shape(i)
        if i in seen:
            _fail(i, f"the instruction occurs twice in %{computation.name}")
        _verify_form(i)
        _verify_shape(i)
        seen.add(i)
    if computation.root not in seen:
        _fail(computation.root, f"the root is not an instruction of %{computation.name}")
    for position, p in enumerate(computation.parameters):
        if p.attrs["index"] != position:
            _fail(p, f"parameter numbers of %{computation.name} must be 0..n-1, found {p.attrs['index']}")


def _fail(i: Instruction, what: str, dimension: int | None = None) -> NoReturn:
    raise VerificationError(what, where=_place(i, dimension))


def _place(i: Instruction, dimension: int | None = None) -> str:
    where = f"%{i.name} = {i.opcode}"
    if dimension is not None:
        where += f", dimension {dimension}"
    return ", ".join((where, *(i.metadata.places if i.metadata else ())))


def _verify_form(i: Instruction) -> None:
    """Opcode, number of operands, attributes."""
    op = OPS.get(i.opcode)
    if op is None:
        _fail(i, f"unknown operation {i.opcode!r}")
    if op.arity is not None and len(i.operands) != op.arity:
        _fail(i, f"{i.opcode} takes {op.arity} operands, not {len(i.operands)}")
    for name in sorted(op.required):
        if name not in i.attrs:
            _fail(i, f"{i.opcode} needs the attribute {name}")
    for name, value in i.attrs.items():
        kind = op.attributes.get(name)
        if kind is not None and not _KINDS[kind](value):
            _fail(i, f"attribute {name} must be of kind {kind}, not {value!r}")


def _verify_written_shape(i: Instruction) -> None:
    """What text can spell and no program can have: sizes without a bound."""
    for leaf in i.shape.leaves():
        if UNBOUNDED in leaf.dims:
            what = f"shape {i.shape} has a dimension without a bound"
            raise UnsupportedError(what, where=_place(i), fix="give the program static or bounded sizes")


def _verify_shape(i: Instruction) -> None:
    rule = RULES[i.opcode]
    shapes = [o.shape for o in i.operands]
    try:
        if rule.check is not None:
            rule.check(shapes, i.attrs, i.shape)
        elif rule.infer is not None:
            inferred = rule.infer(shapes, i.attrs)
            if not shapes_agree(inferred, i.shape):
                raise RuleError(
                    f"the shape is {i.shape}, but its operands give {inferred}", _differing(inferred, i.shape)
                )
    except RuleError as e:
        _fail(i, e.what, e.dimension)


def _differing(a: Shape, b: Shape) -> int | None:
    if a.rank != b.rank:
        return None
    return next((d for d in range(a.rank) if a.dims[d] != b.dims[d]), None)


def _verify_devices(module: Module, computation: Computation) -> None:
    """Replica groups and permutation pairs name existing devices, each once.

    A global program often does not know its device count yet; then only repetition is an error.
    """
    count = module.num_partitions * module.replica_count
    limit = count if module.partitioned or count > 1 else None
    checked: set[object] = set()
    for i in computation:
        groups = i.attrs.get("replica_groups", i.attrs.get("source_target_pairs"))
        if groups is None or groups in checked or i.attrs.get("slice_sizes", "").count("{") > 2:
            # A permute of several slices may name a device once per slice.
            continue
        checked.add(groups)
        if isinstance(groups, AxisGroups | AxisPairs):
            if limit is not None and groups.mesh.size != limit:
                _fail(i, f"groups are over {count_text(groups.mesh.size, 'device')}, but the program is for {limit}")
            continue
        if isinstance(groups, IotaGroups):
            if limit is not None and groups.num_devices > limit:
                _fail(i, f"device {limit} does not exist, the program is for {limit}")
            continue
        pairs = isinstance(groups, ListPairs)
        for ids in zip(*groups.expand(), strict=True) if pairs else [tuple(chain(*groups.expand()))]:
            bad = next((d for d in ids if d < 0 or (limit is not None and d >= limit)), None)
            if bad is not None:
                _fail(i, f"device {bad} does not exist, the program is for {limit or 'devices from 0 on'}")
            if len(set(ids)) != len(ids):
                _fail(i, f"a device occurs twice in {'pairs' if pairs else 'groups'} {ids}")


def _verify_parameters_of_entry(module: Module) -> None:
    count = len(module.parameters)
    for number in (*module.donors, *(a.parameter for a in module.aliases)):
        if not 0 <= number < count:
            raise VerificationError(
                f"parameter {number} is donated, but the entry has {count_text(count, 'parameter')}",
                where=_header(module),
            )
    for a in module.aliases:
        output = _at(module.entry.root.shape, a.output)
        source = _at(module.parameters[a.parameter].shape, a.parameter_index)
        if output is None or source is None:
            raise VerificationError(
                f"alias of result {a.output} and parameter {a.parameter} {a.parameter_index}: no such element",
                where=_header(module),
            )


def _header(module: Module) -> str:
    """Where the text of a module begins, for what no instruction says."""
    place = next((i.metadata.place for i in module.entry if i.metadata and i.metadata.place), "")
    file = f"{place.rsplit(':', 2)[0]}:1" if place else module.source_file
    return f"{module.name}, {file}" if file else module.name


def _at(shape: Shape, path: tuple[int, ...]) -> Shape | None:
    for k in path:
        if not shape.is_tuple or not 0 <= k < len(shape.elements):
            return None
        shape = shape.elements[k]
    return shape


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _tuple_of(item: Callable[[Any], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, tuple) and all(item(v) for v in value)


def _instance(*types: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, types)


_TRIPLES = _tuple_of(lambda v: isinstance(v, tuple) and len(v) == 3 and all(_is_int(n) for n in v))
_TEXT = _instance(str)
_KINDS: Mapping[str, Callable[[object], bool]] = MappingProxyType(
    {
        "int": _is_int,
        "float": lambda value: isinstance(value, float) or _is_int(value),
        "bool": _instance(bool),
        "str": _TEXT,
        "enum": _TEXT,
        "raw": _TEXT,
        "ints": _tuple_of(_is_int),
        "enums": _tuple_of(_TEXT),
        "slice": _TRIPLES,
        "padding": _TRIPLES,
        "window": _instance(Window),
        "dim_labels": _instance(ConvDims),
        "computation": _instance(Computation),
        "computations": _tuple_of(_instance(Computation)),
        "groups": _instance(AxisGroups, IotaGroups, ListGroups),
        "pairs": _instance(AxisPairs, ListPairs),
        "literal": _instance(Literal),
        "shape": _instance(Shape),
        "shapes": _tuple_of(_instance(Shape)),
    }
)
