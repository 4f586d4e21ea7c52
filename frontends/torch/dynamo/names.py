"""What the inputs of a graph of ``torch.compile`` are called: parameters as in ``state_dict``, others as in Python."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

__all__ = ["GraphInput", "graph_inputs"]

_STEP = re.compile(r"\._(?:modules|parameters|buffers)\['([^']+)'\]")
_ROOT = re.compile(r"^[LG]\['([^']+)'\]")


@dataclass(frozen=True, slots=True)
class GraphInput:
    """An input of the graph; ``state`` says that it is a parameter or a buffer."""

    name: str
    state: bool


def graph_inputs(graph_module: Any) -> tuple[GraphInput, ...]:
    """The inputs of a graph that ``torch.compile`` has captured, in its order.

    Parameters and buffers have the name that ``state_dict`` has for them. Two of the same name, of two modules, have
    the Python name of their module in front.
    """
    sources = [_source(n) for n in graph_module.graph.nodes if n.op == "placeholder"]
    count = Counter(_name(s) for s in sources)
    return tuple(GraphInput(_name(s) if count[_name(s)] == 1 else _long_name(s), _is_state(s)) for s in sources)


def _source(node: Any) -> str:
    argument = node.meta.get("grapharg")
    source = getattr(argument, "source", None)
    name = getattr(source, "name", node.name)
    return str(name() if callable(name) else name)


def _is_state(source: str) -> bool:
    return bool(re.search(r"\._(?:parameters|buffers)\['[^']+'\]$", source))


def _name(source: str) -> str:
    if _is_state(source):
        return ".".join(_STEP.findall(source))
    root = _ROOT.match(source)
    return f"{root[1]}{source[root.end() :]}" if root else source


def _long_name(source: str) -> str:
    root = _ROOT.match(source)
    return f"{root[1]}.{_name(source)}" if root and _is_state(source) else source
