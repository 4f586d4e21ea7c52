"""A failing JAX program made small, by cuts that keep its failure; and its text."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from jax_terms import Body, Case

__all__ = ["shrink", "text"]


def shrink(case: Case, fails: Callable[[Case], bool], seconds: float = 60) -> Case:
    """A smaller case for which ``fails`` still holds: fewer results, steps, arguments' shardings, mesh axes."""
    end = time.monotonic() + seconds
    changed = True
    while changed and time.monotonic() < end:
        changed = False
        for smaller in _cuts(case):
            if time.monotonic() > end:
                break
            if _holds(smaller, fails):
                case, changed = smaller, True
                break
    return case


def _holds(case: Case, fails: Callable[[Case], bool]) -> bool:
    try:
        return fails(case)
    except Exception:
        return False


def _cuts(case: Case) -> Iterator[Case]:
    body = case.body
    if len(body.results) > 1:
        for k in body.results:
            yield _alive(replace(case, body=replace(body, results=(k,))))
    for smaller in _smaller(body):
        yield _alive(replace(case, body=smaller))
    for k, spec in enumerate(case.specs):
        if spec is not None:
            yield replace(case, specs=(*case.specs[:k], None, *case.specs[k + 1 :]))
            for d, entry in enumerate(spec):
                if entry is not None:
                    yield replace(
                        case, specs=(*case.specs[:k], (*spec[:d], None, *spec[d + 1 :]), *case.specs[k + 1 :])
                    )
    used = {a for s in case.specs if s for e in s if e for a in ((e,) if isinstance(e, str) else e)}
    for axis in case.mesh:
        if axis not in used and len(case.mesh) > 1:
            yield replace(case, mesh={a: n for a, n in case.mesh.items() if a != axis})


def _smaller(body: Body) -> Iterator[Body]:
    """An earlier value as the result; a step replaced by one of its inputs; a step's body made smaller."""
    first = len(body.inputs)
    for k, step in reversed(list(enumerate(body.steps))):
        at = first + k
        if body.results == (at,):
            for i in step.inputs:
                yield replace(body, results=(i,))
        for i in step.inputs:
            yield _renamed(body, at, i)
    for k, step in enumerate(body.steps):
        for b, inner in enumerate(step.bodies):
            for smaller in _smaller(inner):
                bodies = (*step.bodies[:b], smaller, *step.bodies[b + 1 :])
                yield replace(body, steps=(*body.steps[:k], replace(step, bodies=bodies), *body.steps[k + 1 :]))


def _renamed(body: Body, old: int, new: int) -> Body:
    """Readers of ``old`` read ``new``, and the step of ``old`` is gone."""

    def name(i: int) -> int:
        i = new if i == old else i
        return i - 1 if i > old else i

    at = old - len(body.inputs)
    steps = [replace(s, inputs=tuple(name(i) for i in s.inputs)) for k, s in enumerate(body.steps) if k != at]
    return replace(body, steps=tuple(steps), results=tuple(name(i) for i in body.results))


def _alive(case: Case) -> Case:
    """Without steps that no result needs; arguments stay."""
    body, first = case.body, len(case.body.inputs)
    needed = set(body.results)
    for k in reversed(range(len(body.steps))):
        if first + k in needed:
            needed.update(body.steps[k].inputs)
    for k in reversed(range(len(body.steps))):
        if first + k not in needed:
            body = _renamed(body, first + k, 0)
    return replace(case, body=body)


def text(case: Case) -> str:
    """The case for a person."""
    lines = [f"  case {case.seed}: mesh {dict(case.mesh)}, x64 {case.x64}, jit {case.jit}"]
    lines += [
        f"  v{k}: {v.dtype}{list(v.shape)} over {s}"
        for k, (v, s) in enumerate(zip(case.body.inputs, case.specs, strict=True))
    ]
    lines += _steps(case.body, "  ")
    return "\n".join(lines)


def _steps(body: Body, indent: str) -> list[str]:
    lines = []
    for k, step in enumerate(body.steps):
        inputs = ", ".join(f"v{i}" for i in step.inputs)
        params = "".join(f", {n}={v!r}" for n, v in step.params.items())
        lines.append(f"{indent}v{len(body.inputs) + k} = {step.op}({inputs}{params})")
        for inner in step.bodies:
            lines += [f"{indent}  body over {len(inner.inputs)} values:", *_steps(inner, indent + "    ")]
    return [*lines, f"{indent}return {', '.join(f'v{i}' for i in body.results)}"]
