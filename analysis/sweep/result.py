"""What a sweep found: every candidate, the best by number of devices, and how well the program scales."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from shardc.analysis.sweep.assess import Outcome
from shardc.hlo.errors import InputError
from shardc.hlo.units import bytes_text, count_text, seconds_text
from shardc.launcher.run.output_files import write_text

__all__ = ["CANDIDATE_COLUMNS", "FAILED_COLUMNS", "SCALING_COLUMNS", "Scaling", "SweepResult"]

#: Marks a candidate that was partitioned for the machine.
_REFINED = " *"
CANDIDATE_COLUMNS = ("devices", "mesh", "annotations", "step", "MFU", "exposed", "peak memory", "sent per device")
SCALING_COLUMNS = ("devices", "step", "speedup", "efficiency", "MFU", "mesh", "annotations")
FAILED_COLUMNS = ("devices", "candidates", "annotations", "why", "for example")


@dataclass(frozen=True, slots=True)
class Scaling:
    """The best on ``devices``, compared with the best on the fewest devices.

    ``speedup`` is the ratio of work per second. ``efficiency`` is the speedup divided by the ratio of the numbers of
    devices.
    """

    devices: int
    step_seconds: float
    speedup: float
    efficiency: float
    mfu: float


@dataclass(frozen=True)
class SweepResult:
    """What `sweep` found: ``outcomes`` of all candidates, by number of devices, the fastest first.

    Candidates that cannot run come last. ``weak`` says that every number of devices had a program of its own, whose
    work grows with it. ``untried`` is the number of meshes that the limit left out, over all sets of annotations.

    >>> result = shardc.sweep(program, devices=[4], machine="h100-dgx", jobs=1, refine=0)
    >>> len(result.ranked), len(result.failed)
    (3, 0)
    """

    program: str
    machine: str
    weak: bool
    outcomes: tuple[Outcome, ...]
    untried: int = 0

    @cached_property
    def ranked(self) -> tuple[Outcome, ...]:
        """Those that run."""
        return tuple(o for o in self.outcomes if o.runs)

    @cached_property
    def failed(self) -> tuple[Outcome, ...]:
        """Those that do not, with their reasons."""
        return tuple(o for o in self.outcomes if not o.runs)

    @property
    def best(self) -> Outcome:
        """The shortest step of all; `InputError` when no candidate runs."""
        if not self.ranked:
            first = self.failed[0].reason if self.failed else "there is none"
            raise InputError(
                f"no candidate can run: {first}", fix="try other annotations, more devices or a larger machine"
            )
        return min(self.ranked, key=lambda o: o.step_seconds)

    @cached_property
    def best_by_devices(self) -> dict[int, Outcome]:
        """The fastest candidate for each number of devices on which one runs."""
        found: dict[int, Outcome] = {}
        for outcome in self.ranked:
            found.setdefault(outcome.devices, outcome)
        return found

    @cached_property
    def scaling(self) -> tuple[Scaling, ...]:
        """Strong scaling: the same work on more devices; with ``weak``: work that grows with the devices."""
        best = self.best_by_devices
        if not best:
            return ()
        first = min(best)
        base = best[first].step_seconds
        out = []
        for devices, o in sorted(best.items()):
            grown = devices / first
            speedup = base / o.step_seconds * (grown if self.weak else 1.0)
            out.append(Scaling(devices, o.step_seconds, speedup, speedup / grown, o.mfu))
        return tuple(out)

    def top(self, count: int) -> list[Outcome]:
        """The ``count`` fastest candidates for each number of devices.

        >>> [outcome.mesh_text for outcome in result.top(1)]
        ['data=1,model=4']
        """
        seen: dict[int, int] = {}
        out = []
        for o in self.ranked:
            seen[o.devices] = seen.get(o.devices, 0) + 1
            if seen[o.devices] <= count:
                out.append(o)
        return out

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data for JSON.

        >>> sorted(result.to_dict())
        ['best', 'candidates', 'failed', 'machine', 'program', 'scaling', 'untried', 'weak']
        """
        return {
            "program": self.program,
            "machine": self.machine,
            "weak": self.weak,
            "untried": self.untried,
            "candidates": [o.to_dict() for o in self.ranked],
            "failed": [o.to_dict() for o in self.failed],
            "best": {str(n): o.to_dict() for n, o in self.best_by_devices.items()},
            "scaling": [asdict(row) for row in self.scaling],
        }

    def save(self, path: str | Path) -> None:
        """Write `to_dict` as a JSON file; raises `InputError` for a file that cannot be written.

        >>> result.save("sweep.json")
        """
        write_text(Path(path), json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n")

    def draw(self, folder: str | Path, suffix: str = ".png") -> list[Path]:
        """Write pictures of scaling and of the candidates into ``folder``, and return their paths (needs matplotlib).

        ``suffix`` is ``.png`` or ``.svg``. Raises `InputError` for others, and for files that cannot be written.

        >>> len(result.draw("pictures", ".svg")) > 0
        True
        """
        from shardc.analysis.sweep.pictures import draw_sweep

        return draw_sweep(self, folder, suffix)

    @property
    def title(self) -> str:
        """One line on what was compared."""
        cannot = f", {len(self.failed)} of them cannot run" if self.failed else ""
        left = f", {count_text(self.untried, 'mesh', 'meshes')} not tried" if self.untried else ""
        return f"{self.program} on {self.machine}: {count_text(len(self.outcomes), 'candidate')}{cannot}{left}"

    def as_text(self, top: int = 10) -> str:
        """What ``print`` shows: the ``top`` fastest candidates per number of devices, scaling, and what cannot run.

        >>> print(result.as_text().splitlines()[0])
        jit_step on h100-dgx: 3 candidates
        """
        parts = [self.title]
        if self.ranked:
            parts.append(_aligned(CANDIDATE_COLUMNS, self.candidate_rows(top)) + self.note)
        if len(self.scaling) > 1:
            parts += [self.scaling_title, _aligned(SCALING_COLUMNS, self.scaling_rows())]
        if self.failed:
            parts += ["cannot run", _aligned(FAILED_COLUMNS, self.failed_rows())]
        if self.advice:
            parts.append(self.advice)
        return "\n\n".join(parts) + "\n"

    def __str__(self) -> str:
        return self.as_text()

    @property
    def note(self) -> str:
        """What the mark at steps of candidates means that were partitioned for the machine; empty where none was."""
        marked = any(o.partitioned_for == "machine" for o in self.ranked)
        return f"\n{_REFINED.strip()} partitioned for the machine, with a plan (--refine)" if marked else ""

    @property
    def advice(self) -> str:
        """What to try where meshes were left out, or where no candidate runs; else empty."""
        reasons = [] if self.ranked else [o.reason for o in self.failed]
        if any("does not divide" in r for r in reasons):
            return "to pad sizes that do not divide, add --uneven, or uneven=True in Python"
        if any("nothing is split" in r for r in reasons):
            return "to split something, annotate values (--annotate x=data), or let --auto find annotations (auto=True)"
        return "to try more meshes, raise --limit, or limit= in Python" if self.untried else ""

    @property
    def scaling_title(self) -> str:
        return "weak scaling: work grows with the devices" if self.weak else "strong scaling: the same work"

    def candidate_rows(self, top: int) -> list[tuple[str, ...]]:
        """Cells for `CANDIDATE_COLUMNS`."""
        return [
            (
                str(o.devices),
                o.mesh_text,
                o.set,
                seconds_text(o.step_seconds) + (_REFINED if o.partitioned_for == "machine" else ""),
                f"{100 * o.mfu:.1f}%",
                f"{100 * o.exposed_share:.1f}%",
                bytes_text(o.peak_bytes),
                bytes_text(o.wire_bytes),
            )
            for o in self.top(top)
        ]

    def scaling_rows(self) -> list[tuple[str, ...]]:
        """Cells for `SCALING_COLUMNS`."""
        best = self.best_by_devices
        return [
            (
                str(row.devices),
                seconds_text(row.step_seconds),
                f"{row.speedup:.2f}x",
                f"{100 * row.efficiency:.0f}%",
                f"{100 * row.mfu:.1f}%",
                best[row.devices].mesh_text,
                best[row.devices].set,
            )
            for row in self.scaling
        ]

    def failed_rows(self) -> list[tuple[str, ...]]:
        """Cells for `FAILED_COLUMNS`: candidates of one number of devices with one reason are one row."""
        alike: dict[tuple[int, str, str], list[Outcome]] = {}
        for o in self.failed:
            alike.setdefault((o.devices, o.set, o.reason), []).append(o)
        return [(str(n), str(len(found)), s, why, found[0].mesh_text) for (n, s, why), found in alike.items()]


def _aligned(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [tuple(columns), *rows]
    widths = [max(len(row[k]) for row in lines) for k in range(len(columns))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in lines)
