"""What plans of layouts are judged by."""

from __future__ import annotations

from pathlib import Path

from shardc.analysis.simulate.judge_by_simulation import judge_by_simulation
from shardc.compiler.lower.judge_by_lowering import judge_by_lowering
from shardc.hlo.config import Config
from shardc.partitioner.plan.judge import Judge

__all__ = ["judge_of"]


def judge_of(machine: str | Path | None, config: Config) -> Judge:
    """A simulated step on ``machine``, or without one what the compiler says."""
    return judge_by_simulation(machine, config) if machine else judge_by_lowering(config)
