"""The line ``HloModule name, attribute=value, ...`` of a module."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from shardc.hlo.ir.ir import Alias, Module
from shardc.hlo.ir.mesh import MOST_DEVICES
from shardc.hlo.ir.types import Shape
from shardc.hlo.text.attributes import KINDS, read_attribute, without_shardings
from shardc.hlo.text.names import KEYWORDS, identifier
from shardc.hlo.text.scanner import Scanner
from shardc.hlo.text.shapes import read_shape, with_layout
from shardc.hlo.text.vocabulary import check_vocabulary
from shardc.hlo.transforms.host_values import HostValues
from shardc.hlo.units import count_text

__all__ = ["TEXT_ATTRIBUTES", "Header", "print_header", "read_header"]

_HEADER = re.compile(r"\s*HloModule\s+(%?)([A-Za-z_][\w.\-]*)(:?)")
_ATTRIBUTE = re.compile(r"\s*,\s*([a-z_]+)=")
_INDEX = re.compile(r"\s*\{([\d,\s]*)\}")
_PARAMETER = re.compile(r"\s*\(\s*(\d+)\s*,\s*")
_ALIAS_KIND = re.compile(r"\s*,\s*(may-alias|must-alias)")

#: Header attributes that are kept in ``Module.attrs`` under their name, with the kind of their value.
_KEPT = {
    "is_scheduled": "bool",
    "alias_passthrough_params": "bool",
    "allow_spmd_sharding_propagation_to_parameters": "bools",
    "allow_spmd_sharding_propagation_to_output": "bools",
    "frontend_attributes": "frontend",
    "backend_config": "config",
    "debug_attributes": "raw",
    "origin_recovery_table": "raw",
}
#: Invitations to change the sharding of parameters and results, void once the program is partitioned.
_GLOBAL_ONLY = ("allow_spmd_sharding_propagation_to_parameters", "allow_spmd_sharding_propagation_to_output")
#: Keys of ``Module.attrs`` that HLO text carries.
TEXT_ATTRIBUTES = (*_KEPT, "buffer_donor", "computation_attributes", "entry_computation_layout", "stack_frames")


@dataclass(slots=True)
class Header:
    """What the header says; ``layout`` is (parameter shapes, result shape) of the entry computation."""

    name: str
    num_partitions: int = 1
    replica_count: int = 1
    aliases: tuple[Alias, ...] = ()
    donors: tuple[tuple[int, tuple[int, ...]], ...] = ()
    layout: tuple[tuple[Shape, ...], Shape] | None = None
    attrs: dict[str, Any] = field(default_factory=dict)


def read_header(scanner: Scanner) -> Header | None:
    """The header at the scanner's position, None when the text has none."""
    found = scanner.match(_HEADER)
    if found is None:
        return None
    sign, name, colon = found.groups()
    if name in KEYWORDS and not sign and not colon:
        raise scanner.error(f"{name!r} is a keyword of HLO", at=found.start(2), fix=f"write %{name}")
    header = Header(name)
    seen: set[str] = set()
    while (found := scanner.match(_ATTRIBUTE)) is not None:
        name = found.group(1)
        if name in seen:
            raise scanner.error(f"module attribute {name} is given twice", at=found.start(1))
        seen.add(name)
        _read(scanner, header, name, found.start(1))
    return header


def _read(scanner: Scanner, header: Header, name: str, at: int) -> None:
    if name == "num_partitions":
        header.num_partitions = _read_count(scanner, header.replica_count, at)
    elif name == "replica_count":
        header.replica_count = _read_count(scanner, header.num_partitions, at)
    elif name == "entry_computation_layout":
        header.layout = _read_layout(scanner)
    elif name == "input_output_alias":
        header.aliases = _read_aliases(scanner)
    elif name == "buffer_donor":
        header.donors = _read_donors(scanner)
    elif name in _KEPT:
        scanner.skip_space()
        start = scanner.pos
        value = read_attribute(scanner, _KEPT[name])
        if _KEPT[name] == "raw":
            value = check_vocabulary(scanner, "HloModule", name, value, start, is_text=True)
        if value is not False:
            header.attrs[name] = value
    else:
        known = ["num_partitions", "replica_count", "entry_computation_layout", "input_output_alias", "buffer_donor"]
        raise scanner.error(f"unknown module attribute {name!r}", at=at, fix=f"known: {', '.join([*known, *_KEPT])}")


def _read_count(scanner: Scanner, others: int, at: int) -> int:
    """Partitions or replicas; with those of the other kind they make the devices."""
    count = max(1, int(read_attribute(scanner, "int")))
    if count * others > MOST_DEVICES:
        fix = f"use at most {MOST_DEVICES:,} devices"
        raise scanner.error(f"the program is for {count_text(count * others, 'device')}", at=at, fix=fix)
    return count


def _read_layout(scanner: Scanner) -> tuple[tuple[Shape, ...], Shape]:
    scanner.expect("{", "at the start of entry_computation_layout")
    scanner.expect("(", "at the start of the parameters")
    parameters: list[Shape] = []
    while not scanner.accept(")"):
        parameters.append(read_shape(scanner))
        if scanner.accept(")"):
            break
        scanner.expect(",", "between parameters")
    scanner.expect("->", "in entry_computation_layout")
    result = read_shape(scanner)
    scanner.expect("}", "at the end of entry_computation_layout")
    return tuple(parameters), result


def _read_index(scanner: Scanner) -> tuple[int, ...]:
    text = scanner.take(_INDEX, "an index such as {0,1}").group(1).strip()
    try:
        return tuple(int(i) for i in text.split(",")) if text else ()
    except ValueError:
        raise scanner.error(f"malformed index {{{text}}}") from None


def _read_aliases(scanner: Scanner) -> tuple[Alias, ...]:
    scanner.expect("{", "at the start of input_output_alias")
    aliases: list[Alias] = []
    while not scanner.accept("}"):
        output = _read_index(scanner)
        scanner.expect(":", "after the result's index")
        parameter = int(scanner.take(_PARAMETER, "(parameter, {index}, kind)").group(1))
        index = _read_index(scanner)
        kind = scanner.match(_ALIAS_KIND)
        scanner.expect(")", "at the end of an alias")
        aliases.append(Alias(output, parameter, index, kind is not None and kind.group(1) == "must-alias"))
        if scanner.accept("}"):
            break
        scanner.expect(",", "between aliases")
    return tuple(aliases)


def _read_donors(scanner: Scanner) -> tuple[tuple[int, tuple[int, ...]], ...]:
    scanner.expect("{", "at the start of buffer_donor")
    donors: list[tuple[int, tuple[int, ...]]] = []
    while not scanner.accept("}"):
        parameter = int(scanner.take(_PARAMETER, "(parameter, {index})").group(1))
        donors.append((parameter, _read_index(scanner)))
        scanner.expect(")", "at the end of a donor")
        if scanner.accept("}"):
            break
        scanner.expect(",", "between donors")
    return tuple(donors)


# --- printing -----------------------------------------------------------------------------------------------


def print_header(module: Module) -> str:
    """The header line; the layout of the entry computation is that of its parameters and root unless kept apart."""
    name = identifier(module.name)
    parts = [f"HloModule {'%' if name in KEYWORDS else ''}{name}"]
    if module.attrs.get("is_scheduled"):
        parts.append("is_scheduled=true")
    if module.aliases:
        parts.append("input_output_alias={ " + ", ".join(map(_show_alias, module.aliases)) + " }")
    donors = [(p, ()) for p in module.donors] + list(module.attrs.get("buffer_donor", ()))
    if donors:
        parts.append("buffer_donor={ " + ", ".join(f"({p}, {_show_index(i)})" for p, i in donors) + " }")
    parameters, result = _entry_layout(module)
    layout = ", ".join(with_layout(s) for s in parameters)
    parts.append(f"entry_computation_layout={{({layout})->{with_layout(result)}}}")
    if module.replica_count > 1:
        parts.append(f"replica_count={module.replica_count}")
    if module.num_partitions > 1:
        parts.append(f"num_partitions={module.num_partitions}")
    for name, kind in _KEPT.items():
        if name in module.attrs and name != "is_scheduled" and not (module.partitioned and name in _GLOBAL_ONLY):
            value = module.attrs[name]
            if name == "frontend_attributes" and module.partitioned:
                value = without_shardings(value)
                if not value:
                    continue
            parts.append(f"{name}={KINDS[kind].show(value)}")
    return ", ".join(parts)


def _entry_layout(module: Module) -> tuple[tuple[Shape, ...], Shape]:
    """The layout that was read, as long as the program still has those shapes. Results in host memory say so."""
    own = (tuple(p.shape for p in module.entry.parameters), HostValues(module).shape(module.entry.root))
    kept = module.attrs.get("entry_computation_layout")
    if kept is not None and not (module.partitioned and _plain(kept) != _plain(own)):
        return (kept[0], kept[1])
    return own


def _plain(layout: tuple[tuple[Shape, ...], Shape]) -> tuple[tuple[Shape, ...], Shape]:
    return tuple(s.plain for s in layout[0]), layout[1].plain


def _show_index(index: tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, index)) + "}"


def _show_alias(alias: Alias) -> str:
    kind = "must-alias" if alias.must else "may-alias"
    return f"{_show_index(alias.output)}: ({alias.parameter}, {_show_index(alias.parameter_index)}, {kind})"
