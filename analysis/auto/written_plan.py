"""A plan as people write it: code to paste, a TOML file for ``--annotations``, a table with reasons."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Template

from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.sharding.notations.partition_spec import dims_text

__all__ = ["PlanSpec", "WrittenPlan", "is_written_plan"]


@dataclass(frozen=True, slots=True)
class PlanSpec:
    """One spec of a plan: ``names`` are what it annotates, with globs, ``sharding`` how.

    ``kind`` is ``argument``, ``result`` or ``value``; ``place`` where a value inside the program is made and ``what``
    makes it, ``reason`` why the plan has it; without it ``follow_bytes`` would have other layouts. One that
    ``replaces`` an annotation of the program cannot be left out.
    """

    kind: str
    names: tuple[str, ...]
    sharding: Sharding
    place: str = ""
    what: str = ""
    reason: str = ""
    follow_bytes: float = 0.0
    replaces: bool = False

    @property
    def partition_spec(self) -> str:
        """``P("data", None)``, with as few entries as say it."""
        entries = [_entry(d) for d in self.sharding.dims]
        while entries and entries[-1] == "None":
            entries.pop()
        return f"P({', '.join(entries)})"

    @property
    def target(self) -> str:
        """What it annotates, for people."""
        return f"{self.place} ({self.what})" if self.place else ", ".join(self.names)


def _entry(dim: DimSharding) -> str:
    axes = [json.dumps(str(a)) for a in dim.axes]
    if not dim.closed:
        return "P.UNCONSTRAINED"
    if len(axes) < 2:
        return axes[0] if axes else "None"
    return f"({', '.join(axes)})"


_HEAD = Template('''\
import fnmatch
import functools

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

mesh = jax.make_mesh($sizes, $axes, axis_types=(AxisType.Auto,) * $count)

#: Shardings of $said, by name; the compiler chooses those of other leaves.
SPECS = {
$specs}


def _shardings(name, tree):
    def one(path, _):
        leaf = name + jax.tree_util.keystr(path)
        found = (s for glob, s in SPECS.items() if fnmatch.fnmatchcase(leaf, glob.replace("[", "[[]")))
        spec = next(found, None)
        return None if spec is None else NamedSharding(mesh, spec)

    return jax.tree_util.tree_map_with_path(one, tree)


def in_shardings(**arguments):
    """One tree of shardings per argument, for jax.jit: in_shardings($example)."""
    known = $roots
    if unknown := [name for name in arguments if name not in known]:
        raise TypeError(f"the program has no argument {unknown[0]!r}; it has {', '.join(known)}")
    return tuple(_shardings(name, tree) for name, tree in arguments.items())
''')

_RESULTS = Template('''

def out_shardings(function, *arguments):
    """The tree of shardings of what the function returns, for jax.jit: out_shardings(function, $arguments)."""
    return _shardings("result", jax.eval_shape(function, *arguments))
''')

_INSIDE = '''

@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def constrained(x, spec):
    """x with the sharding spec; unlike jax.lax.with_sharding_constraint alone, this leaves the gradient free."""
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))


@constrained.defjvp
def _(spec, primals, tangents):
    return constrained(*primals, spec), *tangents


# Inside of the program, with "from plan import P, constrained":
'''


_ANNOTATIONS = Template("""\
from shardc import P

MESH = {$mesh}

#: Shardings of values, by name: program.annotate(SPECS, mesh=MESH).
SPECS = {
$specs}
""")


def _pattern(template: Template) -> str:
    """A regular expression for what ``template`` gives: anything within a line, and lines of specs."""
    parts = re.split(r"(\$[a-z]+)", template.template)
    return "".join({"$specs": r"(?:    .*\n)*"}.get(p, ".*") if p[:1] == "$" else re.escape(p) for p in parts)


_CONSTRAINT = r"\n# .*: x is what this makes\n# x = constrained\(x, .*\)\n"
_WRITTEN = re.compile(
    f"{_pattern(_ANNOTATIONS)}|{_pattern(_HEAD)}(?:{_pattern(_RESULTS)})?(?:{re.escape(_INSIDE)}(?:{_CONSTRAINT})*)?"
)


def is_written_plan(code: str) -> bool:
    """Whether ``code`` is a plan as `WrittenPlan` writes it as Python, where nobody has added anything.

    Example: ``is_written_plan(plan.as_jax())`` is true, of ``plan.as_jax() + "train()"`` it is false.
    """
    return _WRITTEN.fullmatch(code) is not None


@dataclass(frozen=True, slots=True)
class WrittenPlan:
    """The ``specs`` of a plan over ``mesh``, arguments first, and ``given`` ones, which the program has already.

    ``arguments`` are the names of the program's arguments. ``whole``: the program says nothing of layouts, so without
    ``specs`` every device has everything.
    """

    mesh: Mesh
    specs: Sequence[PlanSpec]
    arguments: Sequence[str]
    given: Sequence[PlanSpec] = ()
    whole: bool = False

    def as_jax(self) -> str:
        """Python code: functions that give the shardings of arguments and results, and a line per constraint inside."""
        sizes, names = (_tuple(map(json.dumps, x)) for x in (self.mesh.shape.values(), self.mesh.axis_names))
        own = [s for s in (*self.specs, *self.given) if s.kind != "value"]
        results = any(s.kind == "result" for s in own)
        specs = "".join(f"    {json.dumps(n)}: {s.partition_spec},\n" for s in own for n in s.names)
        if self.whole and not self.specs:
            specs = '    "*": P(),  # nothing is split: no layout was found with which a step is shorter\n'
        roots = list(dict.fromkeys(n.partition("[")[0].partition(".")[0] for n in self.arguments))
        code = _HEAD.substitute(
            sizes=sizes,
            axes=names,
            count=len(self.mesh.axes),
            said="arguments and results" if results else "arguments",
            specs=specs,
            roots=_tuple(map(json.dumps, roots)),
            example=", ".join(f"{r}={r}" for r in roots),
        )
        code += _RESULTS.substitute(arguments=", ".join(roots)) if results else ""
        inside = [s for s in self.specs if s.kind == "value"]
        return code + (_INSIDE if inside else "") + "".join(map(_constraint, inside))

    def as_annotations(self) -> str:
        """Python code for `Program.annotate`, which programs take that JAX did not make."""
        mesh = ", ".join(f"{json.dumps(a)}: {n}" for a, n in self.mesh.axes)
        specs = "".join(f"    {json.dumps(n)}: {s.partition_spec},\n" for s in self.specs for n in s.names)
        return _ANNOTATIONS.substitute(mesh=mesh, specs=specs)

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
        return [(s.target, s.partition_spec, s.reason) for s in self.specs]


def _tuple(items: Iterable[str]) -> str:
    first, *others = items
    return f"({', '.join((first, *others))}{'' if others else ','})"


def _constraint(spec: PlanSpec) -> str:
    return f"\n# {spec.target}: x is what this makes\n# x = constrained(x, {spec.partition_spec})\n"


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)
