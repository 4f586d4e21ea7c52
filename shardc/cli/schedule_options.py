"""Options about what overlaps: the machine that a program is partitioned and scheduled for, and measured times."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from shardc.cli.options import parse_bytes
from shardc.hlo.errors import InputError

__all__ = [
    "MachineOption",
    "OverlapOption",
    "PipelinedOption",
    "PlanMemoryOption",
    "PlanOption",
    "ProfileInOption",
    "Scheduling",
    "WindowedOption",
    "plan_terms",
]

_CHOICES = "never|auto|always"

MachineOption = Annotated[
    str,
    typer.Option("--machine", metavar="NAME", help="Minimise time on this machine (a name or TOML file), not bytes."),
]
WindowedOption = Annotated[
    str,
    typer.Option(
        "--windowed-einsum",
        metavar=_CHOICES,
        help="Products compute on parts of an operand while other parts travel; auto: where faster on --machine.",
    ),
]
PipelinedOption = Annotated[
    str,
    typer.Option(
        "--pipelined-loops",
        metavar=_CHOICES,
        help="Loops gather for the next iteration and reduce for the previous one; auto: where faster on --machine.",
    ),
]
OverlapOption = Annotated[
    str,
    typer.Option(
        "--overlap",
        metavar=_CHOICES,
        help="Collectives run while devices compute; auto: where the machine can and it saves time (SHARDC_OVERLAP).",
    ),
]
ProfileInOption = Annotated[
    Path | None,
    typer.Option("--profile-in", metavar="FILE", help="Schedule by these measured times (bench --profile-out)."),
]
PlanOption = Annotated[
    str,
    typer.Option(
        "--plan",
        metavar="propagated|auto|global",
        help="Layouts inside the program: as propagated, or chosen for all values at once; auto: within a budget.",
    ),
]
PlanMemoryOption = Annotated[
    str,
    typer.Option("--memory", metavar="SIZE", help="Memory of a plan per device, such as 40GiB."),
]


def plan_terms(plan: str, memory: str) -> dict[str, Any]:
    """What `partition` is asked for by these two options; nothing where they say nothing. Raises `InputError` for a
    size that is none."""
    chosen = {"plan": plan} if plan else {}
    return {**chosen, "memory": parse_bytes(memory, "--memory")} if plan or memory else {}


@dataclass(frozen=True, slots=True)
class Scheduling:
    """What the options say; empty ones leave the environment's settings."""

    machine: str = ""
    overlap: str = ""
    measured: Path | None = None
    windowed_einsum: str = "auto"
    pipelined_loops: str = "auto"
    plan: str = ""
    memory: str = ""

    def options_said(self) -> list[str]:
        """The options that say something, the machine aside."""
        plain = Scheduling(self.machine)
        said = [f.name for f in fields(self) if getattr(self, f.name) != getattr(plain, f.name)]
        return ["--profile-in" if name == "measured" else f"--{name.replace('_', '-')}" for name in said]

    def scheduled(self, program: Any) -> Any:
        """`partitioned`, to be run. Raises `InputError` for measured times that nothing is scheduled by."""
        made = self.partitioned(program)
        if self.measured is not None and not made.report()["collectives"]:
            what = "the program has no collectives to schedule: --profile-in has no effect"
            raise InputError(what, where=str(self.measured), fix="omit --profile-in, or split the program over a mesh")
        return made

    def partitioned(self, program: Any) -> Any:
        """``program`` partitioned, to be compiled, by these settings."""
        described = program.scheduled(overlap=self.overlap or None, measured=self.measured)
        return described.partition(
            machine=self.machine or None,
            windowed_einsum=self.windowed_einsum,
            pipelined_loops=self.pipelined_loops,
            **plan_terms(self.plan, self.memory),
        )
