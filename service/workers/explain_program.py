"""Orders of kind ``explain``: why collectives are there, where shardings come from, what annotations change."""

from __future__ import annotations

from dataclasses import replace

from shardc.hlo.codec import plain
from shardc.service.orders import ExplainOrder
from shardc.service.workers.workbench import Workbench

__all__ = ["explain_program"]


def explain_program(bench: Workbench, order: ExplainOrder) -> dict[str, bytes]:
    """``stories.json`` where the order names values, ``difference.json`` where it has other annotations (or another
    mesh), else ``explanation.json``; the latter two with the files of `partition_program`."""
    if order.values:
        return _stories(bench, order)
    if order.other_annotations is not None or order.other_mesh:
        return _difference(bench, order)
    from shardc.analysis.explain.diagnostics.survey import thresholds_of
    from shardc.analysis.explain.explain import explain
    from shardc.analysis.explain.remedies import SearchLimits

    partitioned = bench.partition()
    with bench.stage("explain"):
        limits = SearchLimits(order.remedies, order.tries, order.seconds)
        told = explain(partitioned, bench.machine() or None, limits, thresholds_of(order.thresholds))
    told = replace(told, machine=bench.shown_machine)
    return {**bench.partition_files(partitioned), "explanation.json": plain.to_json(told).encode()}


def _stories(bench: Workbench, order: ExplainOrder) -> dict[str, bytes]:
    propagated = bench.propagate(bench.open_program())
    with bench.stage("explain"):
        return {"stories.json": bench.json({name: propagated.explain(name) for name in order.values})}


def _difference(bench: Workbench, order: ExplainOrder) -> dict[str, bytes]:
    from shardc.analysis.explain.difference import difference

    program = bench.read_program()
    before = bench.partition(bench.annotate(program, order.annotations, order.mesh))
    others = order.annotations if order.other_annotations is None else order.other_annotations
    after = bench.partition(bench.annotate(program, others, order.other_mesh or order.mesh))
    with bench.stage("explain"):
        found = difference(before, after, bench.machine() or None)
    return {**bench.partition_files(before), "difference.json": plain.to_json(found).encode()}
