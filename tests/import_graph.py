"""The product's modules and what imports what, read from the source.

Every import counts, also inside functions and for types.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Set
from functools import lru_cache
from pathlib import Path

#: Floors from the lowest to the highest. The first two import nothing of ours, not even each other.
FLOORS = (
    "native",
    "hlo",
    "sharding",
    "costs",
    "collectives",
    "partitioner",
    "compiler",
    "launcher",
    "frontends",
    "analysis",
    "service",
    "shardc",
)


@lru_cache(maxsize=1)
def sources(repository: Path) -> Mapping[str, Path]:
    """Every module of the product by its dotted name, such as ``shardc.hlo.ir.types``."""
    found = {}
    for floor in FLOORS:
        folder = repository / floor
        for path in _python_files(folder):
            parts = list(path.relative_to(folder).with_suffix("").parts)
            if parts[-1] == "__init__":
                parts.pop()
            found[".".join(["shardc", *([] if floor == "shardc" else [floor]), *parts])] = path
    return found


def _python_files(folder: Path) -> Iterator[Path]:
    """The Python files below ``folder``, without following links."""
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            yield from _python_files(entry)
        elif entry.suffix == ".py":
            yield entry


@lru_cache(maxsize=1)
def trees(repository: Path) -> Mapping[str, ast.Module]:
    """Every module of the product, parsed."""
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in sources(repository).items()}


def imports(repository: Path) -> dict[str, set[str]]:
    """What each module imports of ours: modules, or packages whose names it uses."""
    modules = sources(repository)
    return {
        name: {found for found in _imported(tree, modules.keys()) if found != name}
        for name, tree in trees(repository).items()
    }


def _imported(tree: ast.Module, modules: Set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                yield from {module if module in modules else node.module} & modules
        elif isinstance(node, ast.Import):
            yield from {alias.name for alias in node.names} & modules


def circles(graph: Mapping[str, Set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or through others, largest first.

    Tarjan, Depth-first search and linear graph algorithms, SIAM Journal on Computing 1, 1972, without recursion.
    """
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(root: str) -> None:
        work = [(root, iter(sorted(graph[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        while work:
            node, successors = work[-1]
            for successor in successors:
                if successor not in index:
                    index[successor] = low[successor] = len(index)
                    stack.append(successor)
                    work.append((successor, iter(sorted(graph[successor]))))
                    break
                if successor in stack:
                    low[node] = min(low[node], index[successor])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    start = stack.index(node)
                    found.append(sorted(stack[start:]))
                    del stack[start:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted((c for c in found if len(c) > 1), key=lambda c: (-len(c), c))


def floor_of(module: str) -> int:
    """The number of the floor that ``module`` lives on; `shardc` itself and what is only there are the top one."""
    part = module.split(".")[1] if "." in module else "shardc"
    return FLOORS.index(part) if part in FLOORS else len(FLOORS) - 1
