"""Where operators of a PyTorch graph come from: the module's path and the user's line, put onto the program's values.

While JAX traces a graph, each operator runs in a named scope that has its number (`scope`). The scope is a part of the
name of every value that comes of it, forward and backward, and says afterwards where the value belongs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardc.hlo.ir.ir import Instruction, Metadata, Module, rebuild_module

__all__ = ["NodePlace", "place_of", "scope", "with_places"]

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in ')
_SCOPE = re.compile(r"aten#(\d+)")


@dataclass(frozen=True, slots=True)
class NodePlace:
    """``module`` is the path of a submodule (``layers.0.mlp``), ``file`` and ``line`` are the user's."""

    module: str = ""
    operator: str = ""
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        """As errors show it."""
        source = f"{self.file}:{self.line}" if self.file else ""
        return ", ".join(part for part in (source, f"module {self.module}" if self.module else "") if part)

    @property
    def op_name(self) -> str:
        return "/".join(part for part in (self.module.replace(".", "/"), self.operator) if part)


def scope(number: int) -> str:
    """The name of the scope in which operator ``number`` is traced."""
    return f"aten#{number}"


def place_of(node: Any, own: str) -> NodePlace:
    """The place of a node of PyTorch's graph; frames in the folder ``own``, which is PyTorch's, count only where
    there are no others."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next(reversed([entry[0] for entry in stack.values()]), "") if stack else ""
    frames = [f for f in _FRAME.findall(node.meta.get("stack_trace") or "") if not f[0].startswith("<")]
    users = [f for f in frames if not f[0].startswith(own)] or frames
    file, line = users[-1] if users else ("", "0")
    return NodePlace(_module_path(path), _short(node), file, int(line))


def _module_path(path: str) -> str:
    """``layers.0`` of ``L['self'].layers.0`` and ``layers.0``; the number of a repeated call comes after @."""
    return re.sub(r"^L\['self'\]\.?(?:_modules\.)?", "", str(path)).split("@")[0]


def _short(node: Any) -> str:
    """``addmm`` of ``aten.addmm.default``."""
    parts = str(node.target).split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "aten" else str(node.name)


def with_places(module: Module, places: Sequence[NodePlace]) -> Module:
    """``module`` with the places of the operators that its values come of."""
    found: dict[Metadata | None, Metadata | None] = {}

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old.metadata not in found:
            found[old.metadata] = _with_place(old.metadata, places)
        metadata = found[old.metadata]
        return None if metadata is old.metadata else old.replace(operands=operands, metadata=metadata)

    return rebuild_module(module, change)


def _with_place(metadata: Metadata | None, places: Sequence[NodePlace]) -> Metadata | None:
    if metadata is None:
        return None
    match = _SCOPE.search(metadata.op_name)
    if match is None:
        return metadata
    place = places[int(match[1])]
    before, after = metadata.op_name[: match.start()], metadata.op_name[match.end() :]
    made = Metadata(before + place.op_name + after)
    return replace(made, source_file=place.file, source_line=place.line) if place.file else made
