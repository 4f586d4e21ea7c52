"""The history of a propagation as plain data, for JSON (the schema is in docs/reference/report.md)."""

from __future__ import annotations

from typing import Any

from shardc.sharding.provenance.history import Place, Provenance, Reason
from shardc.sharding.provenance.missed import Agreed, missed_axes

__all__ = ["provenance_dict"]


def provenance_dict(history: Provenance) -> dict[str, Any]:
    """``mesh``, ``values`` and ``steps``; linear in the program's size, since paths are told by step numbers."""
    roots: dict[Place, Reason | None] = {}
    agreed: Agreed = {}
    values = [_value(history, v, roots, agreed) for v in range(len(history.graph.origin))]
    mesh = history.graph.mesh
    return {
        "version": 1,
        "mesh": {"axes": dict(mesh.axes), "device_ids": list(mesh.device_ids) if mesh.device_ids else None},
        "values": values,
        "steps": [_step(history, number) for number in range(1, len(history.steps) + 1)],
    }


def _value(history: Provenance, value: int, roots: dict[Place, Reason | None], agreed: Agreed) -> dict[str, Any]:
    instruction, leaf = history.graph.origin[value]
    shape = list(instruction.shape.leaves())[leaf]
    sharding = history.shardings[value]
    dims = []
    for dim, entry in enumerate(sharding.dims):
        axes = [_axis(history, (value, dim, a), roots) for a in entry.axes]
        given = history.graph.initial[value].dims[dim]
        closed = history.graph.annotated[value] and given.closed
        dims.append({"size": shape.dims[dim], "axes": axes, "closed_by_annotation": closed})
    return {
        "name": history.name(value),
        "shape": str(shape),
        "sharding": str(sharding.as_layout),
        "source": instruction.source or None,
        "dimensions": dims,
        "lost": [
            {
                "dimension": missed.dimension,
                "axes": list(missed.axes),
                "of": missed.other,
                "via": missed.via,
                "factor": missed.factor,
                "because": missed.because,
                "conflict": missed.is_conflict,
            }
            for missed in missed_axes(history, value, agreed)
        ],
    }


def _axis(history: Provenance, place: Place, roots: dict[Place, Reason | None]) -> dict[str, Any]:
    reason, _ = history.origin(place)
    root = _root(history, place, roots)
    return {
        "axis": str(place[2]),
        "step": reason.step if reason is not None else None,
        "annotation": {"value": root.value, "dimension": root.dimension, "source": root.source_line or None}
        if root is not None
        else None,
    }


def _root(history: Provenance, place: Place, roots: dict[Place, Reason | None]) -> Reason | None:
    """The annotation that an axis came from, found once for every place on the way."""
    path: list[Place] = []
    here: Place | None = place
    found: Reason | None = None
    while here is not None and here not in path:
        if here in roots:
            found = roots[here]
            break
        path.append(here)
        reason, here = history.origin(here)
        found = reason if reason is not None and reason.step == 0 else None
    roots.update(dict.fromkeys(path, found))
    return found


def _step(history: Provenance, number: int) -> dict[str, Any]:
    reasons = history.step(number)
    return {
        "step": number,
        "value": history.name(history.steps[number - 1][0]),
        "via": reasons[0].via if reasons else None,
        "rule": reasons[0].rule if reasons else None,
        "source": (reasons[0].source_line or None) if reasons else None,
        "gains": [
            {
                "dimension": r.dimension,
                "axes": list(r.axes),
                "factor": r.factor,
                "from": {"value": r.source, "dimension": r.source_dimension},
            }
            for r in reasons
        ],
    }
