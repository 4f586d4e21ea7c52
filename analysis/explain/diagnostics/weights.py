"""Which arguments are weights: what a step returns updated; in a program that updates nothing, all but its inputs."""

from __future__ import annotations

from collections.abc import Iterable

from shardc.analysis.explain.candidates import AnnotatableNames
from shardc.analysis.explain.diagnostics.survey import PRODUCTS
from shardc.sharding.propagation.graph import PropagationGraph
from shardc.sharding.rules.factor_rule import FactorKind

__all__ = ["weights"]


def weights(names: AnnotatableNames, arguments: Iterable[str]) -> dict[str, int]:
    """Values of the weights, by the argument's name."""
    values = {n: v for n in arguments if (v := names.argument(n)) is not None}
    updated = {n: v for n, v in values.items() if names.is_returned(v)}
    if updated:
        return updated
    inputs = _passed_on(names.history.graph, values.values())
    return {n: v for n, v in values.items() if v not in inputs}


def _passed_on(graph: PropagationGraph, values: Iterable[int]) -> set[int]:
    """Values with a dimension that results have and no product sums over, such as a batch: inputs."""
    parent: dict[tuple[int, int], tuple[int, int]] = {}

    def find(place: tuple[int, int]) -> tuple[int, int]:
        while (up := parent.get(place, place)) != place:
            place = up
        return place

    summed: list[tuple[int, int]] = []
    for e in (*graph.equations, *graph.results):
        for f, factor in enumerate(e.rule.factors):
            places = [(e.tensors[t], d) for t, d in e.rule.places(f) if len(e.rule.tensors[t][d]) == 1]
            for p in places[1:]:
                parent[find(p)] = find(places[0])
            if places and factor.kind is FactorKind.REDUCTION and e.instruction.opcode in PRODUCTS:
                summed.append(places[0])
    contracted = {find(p) for p in summed}
    results = {find((e.tensors[-1], d)) for e in graph.results for d in range(len(graph.dims[e.tensors[-1]]))}
    kept = results - contracted
    return {v for v in values if any(find((v, d)) in kept for d in range(len(graph.dims[v])))}
