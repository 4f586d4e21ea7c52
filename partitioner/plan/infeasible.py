"""Errors if no plan is possible: the excess of memory and the largest values, or the annotations that contradict each
other."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.hlo.errors import PlanError
from shardc.hlo.units import apart_text, bytes_text
from shardc.partitioner.plan.explain_plan import heaviest_values, name_variables
from shardc.partitioner.plan.plan_layouts import LayoutQuestion
from shardc.partitioner.strategy.solve.problem import ChosenOptions

__all__ = ["describe_conflict", "describe_excess"]

#: Values and arguments that are named.
_TOLD = 6


def describe_excess(question: LayoutQuestion, choice: Sequence[int], memory: float, peak: float) -> PlanError:
    """No plan was found within ``memory`` bytes: the smallest one, of ``choice``, takes ``peak`` bytes. All other
    figures are the model's for this plan, at the operation that needs most memory; they add up. The model gives no
    lower bound: only the bytes of arguments with given layouts are certain.
    """
    usage = question.memory.usage(choice)
    place = int(usage.argmax())
    nodes, given = question.graph.nodes, question.memory.given
    most, least = apart_text(bytes_text, memory, peak, "B")
    what = f"no plan was found within {most} of memory per device: the smallest found takes {least}, "
    what += f"{bytes_text(peak - memory)} too much"
    names = name_variables(question)
    heaviest = list(heaviest_values(question, choice, place, names))[:_TOLD]
    arguments = question.given_arguments()
    kept = {name for name, _ in arguments}
    clusters = enumerate(question.problem.clusters)
    reading = next((names[k] for k, c in clusters if any(n.index == place for n in c.members)), "")
    parts = [
        f"{name}{' in another layout' * (name in kept)}{' with its operands' * (name == reading)} {bytes_text(nbytes)}"
        for name, nbytes in heaviest
    ]
    if given:
        fixed = [f"{name} {bytes_text(nbytes)}" for name, nbytes in arguments]
        more = [f"{len(fixed) - _TOLD} more"] if len(fixed) > _TOLD else []
        parts.append(f"arguments with given layouts {bytes_text(given)} ({', '.join([*fixed[:_TOLD], *more])})")
    rest = float(usage[place]) - given - sum(nbytes for _, nbytes in heaviest)
    parts += [f"others {bytes_text(rest)}"] if rest >= 1 else []
    counted = bytes_text(float(usage[place]))
    what += f"; the model counts {counted} at this operation, before fusion: {', '.join(parts)}"
    if given > memory:
        fix = "split the arguments over more axes, leave their layouts to the plan, or use more devices"
    else:
        fix = "give more memory or devices, or annotate fewer values"
    return PlanError(what, where=nodes[min(place, len(nodes) - 1)].op.place if nodes else None, fix=fix)


def describe_conflict(question: LayoutQuestion, answer: ChosenOptions) -> PlanError:
    """No choice is allowed at all."""
    names = name_variables(question)
    values = list(dict.fromkeys(names[v] for v in answer.conflict))
    return PlanError(
        f"no combination of layouts for {', '.join(values)} is allowed",
        where=question.module.name,
        fix="remove annotations or constraints of these values",
    )
