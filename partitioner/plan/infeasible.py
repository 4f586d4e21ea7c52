"""Errors for what no plan can do: by how much memory is exceeded and by which values, or what contradicts itself."""

from __future__ import annotations

from shardc.hlo.errors import PlanError
from shardc.hlo.units import bytes_text
from shardc.partitioner.plan.explain_plan import heaviest_values, name_variables
from shardc.partitioner.plan.plan_layouts import LayoutQuestion
from shardc.partitioner.strategy.solve.problem import ChosenOptions

__all__ = ["describe_conflict", "describe_excess"]

#: Arguments that are named.
_TOLD = 6


def describe_excess(question: LayoutQuestion, answer: ChosenOptions, memory: float, peak: float) -> PlanError:
    """No plan was found within ``memory`` bytes: ``answer`` is the last one tried, ``peak`` the least that one came to.

    The model of memory bounds nothing from below: only what arguments take that stay as they are is sure.
    """
    assert answer.choice is not None
    usage = question.memory.usage(answer.choice)
    place = int(usage.argmax())
    nodes, given = question.graph.nodes, question.memory.given
    what = f"no plan was found within {bytes_text(memory)} of memory per device: the nearest takes {bytes_text(peak)}, "
    what += f"{bytes_text(peak - memory)} too many"
    heaviest = heaviest_values(question, answer.choice, place, name_variables(question))
    told = [f"{name} {bytes_text(nbytes)}" for name, nbytes in heaviest]
    fixed = [f"{name} {bytes_text(nbytes)}" for name, nbytes in question.given_arguments()[:_TOLD]]
    what += f"; by the model, the last plan tried uses most memory for {', '.join(told)}" if told else ""
    what += f"; arguments with given layouts take {bytes_text(given)}: {', '.join(fixed)}" if fixed else ""
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
        f"no layouts of {', '.join(values)} are allowed together",
        where=question.module.name,
        fix="remove annotations or constraints of these values",
    )
