"""What a per-device program costs by simulation, for choosing among plans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from shardc.analysis.simulate.run import simulate
from shardc.compiler.lower.described import lower_for, overlap_on
from shardc.costs.machines.machine import load_machine
from shardc.costs.network.mapping import place
from shardc.hlo.config import Config
from shardc.hlo.ir.ir import Module
from shardc.partitioner.plan.judge import Judge, Judgement

__all__ = ["judge_by_simulation"]


def judge_by_simulation(machine: str | Path, config: Config) -> Judge:
    """Seconds of a simulated step on a machine, and its peak memory."""
    described = load_machine(machine)
    config = replace(config, machine=str(machine))

    def judge(module: Module) -> Judgement:
        assert module.mesh is not None
        placement = place(described, module.mesh)
        overlap = overlap_on(placement, config)
        start = 0.0 if overlap is None else overlap.start_seconds
        found = simulate(lower_for(module, placement, config), placement, start_seconds=start)
        return Judgement((found.step_seconds,), float(found.peak_bytes))

    return judge
