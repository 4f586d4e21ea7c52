"""How a program is partitioned: the choices that a caller has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from shardc.hlo.errors import InputError
from shardc.partitioner.free_interface import FreeInterface

__all__ = ["CHOICES", "DEFAULT_PLAN", "PLANS", "Choice", "PartitionOptions", "Plan"]

#: Never, where the modelled time on a machine says so, or wherever it can be done.
Choice = Literal["never", "auto", "always"]
CHOICES: tuple[Choice, ...] = get_args(Choice)

#: Layouts as propagation gives them, or chosen for the whole program at once: within a budget, or whatever it takes.
Plan = Literal["propagated", "auto", "global"]
PLANS: tuple[Plan, ...] = get_args(Plan)
#: What programs are partitioned with that nobody said anything about.
DEFAULT_PLAN: Plan = "auto"


@dataclass(frozen=True, slots=True)
class PartitionOptions:
    """What overlaps communication with compute, at the cost of more and smaller steps. The first two are a `Choice`;
    ``auto`` needs a machine, and without one does nothing.

    ``windowed_einsum``: an all-gather that feeds matrix products, or a product that feeds a reduce-scatter, becomes
    a ring that computes with one part while the next one travels.
    ``pipelined_loops``: a loop gathers what the next iteration needs during this one, and reduces what the last one
    made, which takes the memory of one more buffer for each. With ``auto`` and a judge, so do only those loops with
    which the judged step is faster; and unchanging collectives stay in loops that hide them (`finish_loops`).
    ``decomposed_rings``: permutes that lead in circles become two that do not.
    ``partial_interface``: arguments and results that are said to be unreduced are passed as partial values of the
    devices, otherwise as whole ones.
    ``plan``: the layouts inside of the program, ``propagated`` ones or, at the cost of partitioning it several times,
    those of the ``global`` plan that costs least (`shardc.partitioner.plan`), within ``memory`` bytes per device
    (None: what the propagated ones take). ``auto``: the same where there is something to win, within a budget that
    counts work and grows with the program; else the propagated ones. With an ``interface`` the plan lays out its
    arguments and results, too.

    Raises `InputError` for any other word.
    """

    windowed_einsum: Choice = "auto"
    pipelined_loops: Choice = "auto"
    decomposed_rings: bool = False
    partial_interface: bool = False
    plan: Plan = "propagated"
    memory: float | None = None
    interface: FreeInterface | None = None

    def __post_init__(self) -> None:
        for name in ("windowed_einsum", "pipelined_loops"):
            given = getattr(self, name)
            if given not in CHOICES:
                raise InputError(
                    f"unknown value {given!r}", where=f"option {name}", fix=f"use one of {', '.join(CHOICES)}"
                )
        if self.plan not in PLANS:
            raise InputError(f"unknown value {self.plan!r}", where="option plan", fix=f"use one of {', '.join(PLANS)}")
        if self.memory is not None and not self.memory > 0:
            raise InputError(f"memory is {self.memory!r}", fix="give a number of bytes per device")
