"""What a partitioned program tells of itself, wherever it was partitioned: of its report, and of its executable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from shardc.hlo.units import count_text

if TYPE_CHECKING:
    from shardc.compiler.lower.buffers.memory_timeline import MemoryTimeline
    from shardc.launcher.driver.compiled import Compiled

__all__ = ["Reported"]


class _Explained(Protocol):
    def explain(self, value: str) -> list[str]: ...


class Reported(ABC):
    """A per-device program that has a report and can be compiled; ``propagated`` is what it was partitioned from."""

    propagated: _Explained

    @property
    @abstractmethod
    def _report(self) -> dict[str, Any]: ...

    @abstractmethod
    def compile(self, target: str = "cpu", *, profile: bool = False, tune: float | None = None) -> Compiled: ...

    def report(self) -> dict[str, Any]:
        """Devices, mesh, parameters, results, collectives, bytes sent, operations: plain data for JSON.

        The page about the report lists its fields and units.

        >>> report = partitioned.report()
        >>> report["devices"], len(report["collectives"])
        (4, 3)
        """
        return dict(self._report)

    def explain(self, value: str | None = None) -> list[str]:
        """One text per collective: what it sends, for which source line, and why. `explanation` says more.

        A program without collectives has one text that says so. With the name of a ``value`` of the whole program it
        is `Propagated.explain` instead: where that value's sharding came from.

        >>> print(partitioned.explain()[0])
        all-reduce %all-reduce over model (2 devices), 1048576 bytes on the wire per device
          at step.py:17
          because the contracted dimension of dot %dot.2 is split over model
        >>> partitioned.explain("x")[0]
        'x: [{data}, {}]'
        """
        if value is not None:
            return self.propagated.explain(value)
        told = [_explained(c) for c in self._report["collectives"]]
        if not told and self._report["devices"] == 1:
            return [_ONE_DEVICE]
        return told or ["no collectives: no data moves between devices"]

    def memory_analysis(self) -> dict[str, int]:
        """Bytes that one device needs, by use: ``memory`` of the report, of the program as it is lowered.

        That is what `compile` makes for this computer, or for a program partitioned for a described machine what
        `simulate` walks there. ``peak_bytes`` is the sum of the others less ``aliased_bytes``, which results share with
        donated arguments, and without ``constant_bytes``, which lie in the code. Scratch memory of kernels is not
        counted. Raises `UnsupportedError` for a program that cannot be compiled.

        >>> partitioned.memory_analysis()["argument_bytes"]
        6291456
        """
        told: dict[str, int] | None = self._report["memory"]
        return self.compile().memory_analysis() if told is None else dict(told)

    def memory_timeline(self) -> MemoryTimeline:
        """Which values are in memory during each step of the program, and how many bytes; the program is compiled for
        this.

        >>> partitioned.memory_timeline().peak >= 0
        True
        """
        return self.compile().memory_timeline()

    def memory_picture(self, path: str | Path) -> None:
        """Write `memory_timeline` as a picture (SVG), with the names of the largest values at the peak.

        Raises `InputError` for a file that cannot be written.

        >>> partitioned.memory_picture("memory.svg")
        """
        self.compile().memory_picture(path)


_ONE_DEVICE = (
    "no collectives: the program runs on one device\n"
    "  for more give a mesh and a sharding: program.annotate({NAME: P('x')}, mesh=Mesh({'x': 4}))"
)


def _explained(c: Mapping[str, Any]) -> str:
    """What a collective of a report moves, for which source line, and why."""
    axes = "+".join(c["axes"]) or "groups"
    text = f"{c['op']} %{c['name']} over {axes} ({count_text(c['group_size'], 'device')}"
    text += f", {c['count']} times" if c["count"] != 1 else ""
    text += f"), {c['wire_bytes']} bytes on the wire per device"
    text += f"\n  at {c['source']}" if c["source"] else ""
    return text + (f"\n  because {c['reason']}" if c["reason"] else "")
