"""Mesh axes along which devices do the same: unused by the whole program, or by a good part of its products."""

from __future__ import annotations

from collections.abc import Iterator

from shardc.analysis.explain.diagnostics.survey import Survey
from shardc.analysis.explain.explanation import Diagnostic, ProgramTotals, Remedy, Suggestion
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.sharding import AxisRef
from shardc.hlo.units import flops_text

__all__ = ["repeated_work"]


def repeated_work(survey: Survey) -> Iterator[Diagnostic]:
    """One warning per axis."""
    total = sum(n for _, n in survey.products)
    used = frozenset().union(*survey.axes.values()) if survey.axes else frozenset()
    for axis, size in survey.sizes.items():
        alike = [(i, n) for i, n in survey.products if axis not in survey.axes.get(i, frozenset())]
        again = sum(n for _, n in alike)
        share = again / total if total else 0.0
        if axis not in used:
            yield _unused(survey, axis, size, share)
        elif total and survey.wasted_share(again, size) >= survey.thresholds.work:
            yield _repeated(survey, axis, size, alike, share)


def _unused(survey: Survey, axis: str, size: int, share: float) -> Diagnostic:
    remedy = _remedy(survey, axis)
    text = f"nothing is split over the mesh axis {axis}: its {size} positions do the same work and hold the same data"
    way = f"annotate an argument over {axis} (a batch dimension costs least), or give a mesh without it"
    return Diagnostic(
        "unused-axis", text, axis, "", {"size": float(size), "repeated_share": share}, Suggestion(way, remedy)
    )


def _repeated(survey: Survey, axis: str, size: int, alike: list[tuple[Instruction, int]], share: float) -> Diagnostic:
    largest, work = max(alike, key=lambda pair: pair[1])
    again = sum(n for _, n in alike)
    text = (
        f"{share:.0%} of the arithmetic is repeated by all {size} positions of the mesh axis {axis}, most of it by"
        f" {largest.opcode} %{largest.name}: {flops_text(work)} of {flops_text(again)} per device"
    )
    numbers = {"size": float(size), "repeated_share": share, "repeated_flops": float(again)}
    way = f"split an argument that this product reads over {axis}, so that every position has a part of the work"
    if _is_propagated_over(survey, largest, axis):
        way = (
            f"propagation splits this product over {axis}; the compiler repeats it, since by its cost model exchanging"
            " parts costs more here. For larger sizes that can change"
        )
    return Diagnostic("redundant-compute", text, axis, largest.source, numbers, Suggestion(way, _remedy(survey, axis)))


def _is_propagated_over(survey: Survey, product: Instruction, axis: str) -> bool:
    """Whether propagation split the product over the axis, and a later choice of a layout did not."""
    known = survey.partitioned.propagated.module.instructions()
    found = next((i for i in known if i.name == product.name and i.sharding is not None), None)
    leaves = () if found is None else found.leaf_shardings()
    return any(a.name == axis for s in leaves for axes in s.axes_by_dim for a in axes)


def _remedy(survey: Survey, axis: str) -> Remedy | None:
    """An argument split over the axis, so that a device computes less."""
    if survey.candidates is None:
        return None
    before = survey.totals

    def accept(after: ProgramTotals) -> bool:
        slower = before.seconds is not None and after.seconds is not None and after.seconds >= before.seconds
        less = after.flops < before.flops * (1 - survey.thresholds.work / 2)
        return less and not slower and after.peak_bytes <= before.peak_bytes

    def worth(after: ProgramTotals) -> tuple[float, ...]:
        return (round(after.flops / max(before.flops, 1), 2), after.wire_bytes, after.peak_bytes)

    return survey.best(survey.candidates.arguments_over(AxisRef(axis)), accept, worth)
