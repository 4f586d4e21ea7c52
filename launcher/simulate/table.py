"""A simulated step as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardc.launcher.simulate.simulation import Simulation

__all__ = ["table"]


def table(simulation: Simulation) -> str:
    """The figures that people look at first."""
    s = simulation
    return f"{s.program} on {s.machine}: {s.step_seconds:.6g} s per step, MFU {100 * s.mfu:.1f}%"
