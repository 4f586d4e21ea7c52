"""What plans of layouts are judged by."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from shardc.hlo.config import Config

if TYPE_CHECKING:
    from shardc.hlo.ir.ir import Module
    from shardc.partitioner.plan.judge import Judge, Judgement

__all__ = ["judge_of"]


def judge_of(machine: str | Path | None, config: Config) -> Judge:
    """A simulated step on ``machine`` or on that of ``config``, without one what the compiler says.

    Simulator and compiler are imported once there is a plan to judge.
    """
    machine = machine or config.machine

    @cache
    def made() -> Judge:
        if machine:
            from shardc.analysis.simulate.judge_by_simulation import judge_by_simulation

            return judge_by_simulation(machine, config)
        from shardc.compiler.lower.judge_by_lowering import judge_by_lowering

        return judge_by_lowering(config)

    def judge(module: Module) -> Judgement:
        return made()(module)

    return judge
