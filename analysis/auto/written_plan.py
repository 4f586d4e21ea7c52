"""A plan as people write it: JAX code to paste, a TOML file for ``--annotations``, a table with reasons."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Template

from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.sharding.notations.partition_spec import dims_text

__all__ = ["PlanSpec", "WrittenPlan"]


@dataclass(frozen=True, slots=True)
class PlanSpec:
    """One spec of a plan: ``names`` are what it annotates, with globs, ``sharding`` how.

    ``kind`` is ``argument``, ``result`` or ``value``; ``source`` the line of a value inside the program, ``reason`` why
    the plan has it.
    """

    kind: str
    names: tuple[str, ...]
    sharding: Sharding
    source: str = ""
    reason: str = ""

    @property
    def partition_spec(self) -> str:
        """``P("data", None)``, with as few entries as say it."""
        entries = [_entry(d) for d in self.sharding.dims]
        while entries and entries[-1] == "None":
            entries.pop()
        return f"P({', '.join(entries)})"


def _entry(dim: DimSharding) -> str:
    axes = [json.dumps(str(a)) for a in dim.axes]
    if not dim.closed:
        return "P.UNCONSTRAINED"
    if len(axes) < 2:
        return axes[0] if axes else "None"
    return f"({', '.join(axes)})"


_ARGUMENTS = Template('''\
import fnmatch

import jax
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh($sizes, $axes)

#: How arguments lie, by name; other leaves are left to the compiler.
SPECS = {
$specs}


def in_shardings(**arguments):
    """One tree of shardings per argument, for jax.jit: in_shardings($example)."""

    def one(path, _):
        name = path[0].key + jax.tree_util.keystr(path[1:])
        found = (s for glob, s in SPECS.items() if fnmatch.fnmatchcase(name, glob.replace("[", "[[]")))
        spec = next(found, None)
        return None if spec is None else NamedSharding(mesh, spec)

    found = jax.tree_util.tree_map_with_path(one, arguments)
    return tuple(found[name] for name in arguments)
''')


@dataclass(frozen=True, slots=True)
class WrittenPlan:
    """The specs of a plan over ``mesh``, arguments first. ``arguments`` are the names of the program's arguments."""

    mesh: Mesh
    specs: Sequence[PlanSpec]
    arguments: Sequence[str]

    def as_jax(self) -> str:
        """Python code: a function that gives the shardings of arguments, and a line per constraint inside."""
        sizes, names = (
            f"({', '.join(map(json.dumps, x))},)" for x in zip(*[(n, a) for a, n in self.mesh.axes], strict=True)
        )
        own = [s for s in self.specs if s.kind == "argument"]
        specs = "".join(f"    {json.dumps(n)}: {s.partition_spec},\n" for s in own for n in s.names)
        roots = dict.fromkeys(n.partition("[")[0].partition(".")[0] for n in self.arguments)
        example = ", ".join(f"{r}={r}" for r in roots)
        code = _ARGUMENTS.substitute(sizes=sizes, axes=names, specs=specs, example=example)
        return code + "".join(_constraint(s) for s in self.specs if s.kind != "argument")

    def as_toml(self) -> str:
        """A file for ``--annotations``: the mesh, and each spec by name."""
        mesh = "".join(f"{_key(a)} = {n}\n" for a, n in self.mesh.axes)
        return f"[mesh]\n{mesh}\n[annotate]\n" + "".join(
            f"{_key(k)} = {json.dumps(s)}\n" for k, s in self.annotations().items()
        )

    def annotations(self) -> Mapping[str, str]:
        """Specs by name, as `Program.annotate` takes them."""
        return {n: dims_text(s.sharding.dims) or "None" for s in self.specs for n in s.names}

    def as_table(self) -> list[tuple[str, str, str]]:
        """Rows (what, spec, reason)."""
        return [
            (", ".join(s.names) + (f" ({s.source})" if s.source else ""), s.partition_spec, s.reason)
            for s in self.specs
        ]


def _constraint(spec: PlanSpec) -> str:
    if spec.kind == "result":
        return f"\n# result {', '.join(spec.names)}: out_shardings=NamedSharding(mesh, {spec.partition_spec})\n"
    call = f"jax.lax.with_sharding_constraint(x, NamedSharding(mesh, {spec.partition_spec}))"
    return f"\n# {spec.source or ', '.join(spec.names)}: x is what this line makes\n# x = {call}\n"


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)
