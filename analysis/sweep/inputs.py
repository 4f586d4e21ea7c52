"""The programs of a sweep as they are given, and how other processes get them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardc.analysis.sweep.plan import SweepFacts
from shardc.analysis.sweep.workers import ProgramSource, over_a_mesh
from shardc.frontends.load import read_file
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.mesh import Mesh
from shardc.partitioner.program import SourceProgram, not_a_program
from shardc.sharding.notations.resize_mesh import manual_border

__all__ = ["SweepProgram"]


@dataclass(frozen=True)
class SweepProgram:
    """A program, and what other processes read it from (None: it cannot leave this one)."""

    program: SourceProgram
    source: ProgramSource | None

    @staticmethod
    def of(given: Any, mesh: Mesh | None) -> SweepProgram:
        """From a `Program` or the path of a file, over ``mesh`` if there is one. Raises `InputError` for others."""
        if isinstance(given, str | Path):
            source = ProgramSource(read_file(given), str(given), () if mesh is None else tuple(mesh.axes))
            return SweepProgram(source.read(), source)
        if not isinstance(given, SourceProgram):
            raise not_a_program(given)
        program = over_a_mesh(given, mesh)
        if program.config.custom_calls:
            return SweepProgram(program, None)
        try:
            return SweepProgram(program, ProgramSource(program.as_stablehlo().encode(), "the program"))
        except UnsupportedError:
            return SweepProgram(program, None)

    @property
    def facts(self) -> SweepFacts:
        """What a sweep knows of it."""
        module = self.program.module
        mesh, manual = module.mesh, manual_border(module)
        place = "" if manual is None else f"%{manual.name}" + (f" ({manual.source})" if manual.source else "")
        digest = "" if self.source is None else self.source.digest
        return SweepFacts(module.name, None if mesh is None else mesh.shape, place, digest)
