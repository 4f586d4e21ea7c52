"""A simulated step, to be shown: as text, HTML, a trace, pictures, and as bytes between blocks of devices."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shardc.analysis.simulate.simulated_step import SimulatedStep
from shardc.hlo.errors import InputError
from shardc.hlo.units import bytes_text, count_text, seconds_text
from shardc.launcher.drawings.fragments import ROWS, axes_text, block, line, table
from shardc.launcher.run.output_files import write_text

__all__ = ["Simulation"]


@dataclass(frozen=True)
class Simulation(SimulatedStep):
    """A simulated step of a program on a machine: what `Partitioned.simulate` returns.

    Times are seconds, memory and traffic are bytes. ``print`` shows tables, and a notebook shows a summary.

    >>> step = partitioned.simulate("h100-dgx")
    >>> 0 < step.mfu < 1 and step.peak_bytes < step.capacity_bytes
    True
    """

    def traffic_matrix(self, blocks: int = 64) -> NDArray[np.float64]:
        """Bytes that blocks of devices (rows) send to blocks of devices (columns) in a step, as float64.

        Up to ``blocks`` devices are a block each. With more devices, each block has equally many neighbouring
        devices; the last may have fewer. The matrix assumes rings in group order, and exchanges between all members. It
        ignores the algorithm that predicted a collective's time.

        >>> partitioned.simulate("h100-dgx").traffic_matrix().shape
        (4, 4)
        """
        from shardc.analysis.simulate.traffic_matrix import traffic_matrix

        return traffic_matrix(self, blocks)

    def as_text(self) -> str:
        """The tables that ``print`` shows: step time, memory, the largest kernels and collectives, the critical path.

        >>> print(partitioned.simulate("h100-dgx").as_text().splitlines()[0])
        machine                   h100-dgx:4, 4 devices: data=2 (nvlink (2 of 4)), model=2 (nvlink (2 of 4))
        """
        from shardc.analysis.simulate.table import table

        return table(self)

    def __str__(self) -> str:
        return self.as_text()

    def _repr_html_(self) -> str:
        total = self.step_seconds or 1.0
        parts = (
            ("compute alone", self.compute_seconds - self.overlapped_seconds, "#7aa6d6"),
            ("overlapped communication", self.overlapped_seconds, "#82bf78"),
            ("exposed communication", self.exposed_seconds, "#ec7a78"),
            ("idle", self.idle_seconds, "#b9b4ab"),
        )
        bars = "".join(
            f'<div title="{name}" style="width:{100 * seconds / total:.2f}%;background:{colour}"></div>'
            for name, seconds, colour in parts
            if seconds > 0
        )
        legend = "; ".join(f"{n} {seconds_text(x)} ({100 * x / total:.1f}%)" for n, x, _ in parts if x > 0)
        memory = f"memory {bytes_text(self.peak_bytes)} of {bytes_text(self.capacity_bytes)}"
        facts = [
            f"{count_text(self.devices, 'device')} of {self.machine}"
            + (f" ({axes_text(self.mesh)})" if self.mesh else ""),
            f"step {seconds_text(self.step_seconds)}",
            f"MFU {100 * self.mfu:.1f}%",
            memory + ("" if self.fits else ": too little"),
        ]
        bar = f'<div style="display:flex;height:18px;max-width:720px;margin:6px 0">{bars}</div>'
        links = [(level, bytes_text(sent)) for level, sent in self.link_bytes.items()]
        sent = table(("one device sends over", "in a step"), links, ROWS) if links else ""
        return block("Simulation", self.program, facts, bar + line(legend) + sent)

    def save(self, path: str | Path) -> None:
        """Write the step as a trace for ui.perfetto.dev (``.trace.json``), as data (``.json``), or as a picture.

        Pictures are ``.png`` or ``.svg``, and need matplotlib. Raises `InputError` for other suffixes and files that
        cannot be written.

        >>> partitioned.simulate("h100-dgx").save("step.trace.json")
        """
        target = Path(path)
        if target.name.endswith(".trace.json"):
            from shardc.analysis.simulate.trace import write_trace

            write_trace(self, target)
        elif target.suffix in (".png", ".svg"):
            from shardc.analysis.simulate.pictures import draw_picture

            draw_picture(self, target)
        elif target.suffix == ".json":
            write_text(target, json.dumps(self.to_dict(), allow_nan=False) + "\n")
        else:
            fix = "use .json, .trace.json for a trace, or .png or .svg for a picture"
            raise InputError(f"a simulation cannot be written as {target.suffix!r}", where=str(path), fix=fix)
