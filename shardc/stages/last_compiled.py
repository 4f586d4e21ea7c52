"""What JAX or a jitted function compiled and ran in this process, as shardc's stages and as pages."""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from shardc.hlo.errors import InputError, ShardcError
from shardc.launcher.driver.compiled import job_config
from shardc.launcher.driver.compiled_programs import KnownProgram, compiled_programs
from shardc.launcher.run.output_files import write_text
from shardc.partitioner.program import SourceProgram
from shardc.stages.stages import Compiled, Partitioned, as_stage, remote_compiler

__all__ = ["ReportFolder", "last_compiled", "remember", "report_programs"]

log = logging.getLogger("shardc")


def last_compiled(name: str = "*") -> Compiled:
    """Return the newest program that JAX or `shardc.jit` compiled and ran in this process.

    A JAX script needs no change. ``name`` is the function's name, or a pattern such as ``"train*"``. The last 32
    programs are remembered, except JAX's programs of one device that have less than 8 kB of StableHLO.
    ``partitioned()`` of the result has the report and the explanation. Calls and ``profile`` take flat arguments, one
    per parameter.

    Raises `InputError` if there is no such program; the message lists the known names.

    >>> import jax.numpy as jnp
    >>> train = shardc.jit(lambda x: jnp.tanh(x @ x.T).sum(), mesh=mesh, in_shardings=P("data"))
    >>> float(train(np.zeros((8, 4), np.float32)))
    0.0
    >>> shardc.last_compiled().partitioned().num_devices
    4
    """
    found = compiled_programs().find(name)
    if found is None:
        known = ", ".join(dict.fromkeys(c.executable.name for c in compiled_programs()))
        if not known:
            raise InputError(
                "this process remembers no compiled program",
                fix="call the function first; JAX's programs of one device below 8 kB are not remembered, so give the "
                "function a mesh, or use the stages of shardc.jit: program, partitioned, compiled",
            )
        raise InputError(f"no program named {name} was compiled", fix=f"use one of: {known}")
    return Compiled(found.executable, config=found.config, source=partial(_partitioned, found), remote=remote_compiler)


def remember(compiled: Compiled) -> None:
    """Let `last_compiled` and reports know of a program that a jitted function ran without the plug-in."""
    report_programs()
    source = compiled._source
    if source is not None:
        compiled_programs().add(KnownProgram(compiled.executable, compiled.config, source, object()))


def _partitioned(program: KnownProgram) -> Partitioned:
    source = program.source()
    if isinstance(source, SourceProgram):
        return as_stage(source).partition()
    assert isinstance(source, Partitioned)
    return source


@dataclass(frozen=True)
class ReportFolder:
    """A folder that gets a page and a file of plain data for every program: ``NUMBER-NAME.html`` and ``.json``.

    A program that is compiled again has its page already, and of those that are small nobody looks at one without a
    collective: operations outside of a jit are such.
    """

    folder: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)
    written: set[object] = field(default_factory=set)

    def add(self, compiled: KnownProgram) -> None:
        """Write both files of a program; what goes wrong is a warning, and not the program's trouble."""
        if compiled.fingerprint in self.written or (compiled.is_small and not compiled.executable.collectives):
            return
        self.written.add(compiled.fingerprint)
        name = re.sub(r"[^\w.-]+", "_", compiled.executable.name)[:80]
        stem = f"{next(self.numbers):04}-{name}"
        try:
            partitioned = _partitioned(compiled)
            self.folder.mkdir(parents=True, exist_ok=True)
            partitioned.write_report(self.folder / f"{stem}.html")
            text = json.dumps(partitioned.report(), indent=2, allow_nan=False, default=str)
            write_text(self.folder / f"{stem}.json", text + "\n")
        except (ShardcError, OSError) as e:
            log.warning("SHARDC_REPORT_TO: no report of %s: %s", name, e)


@cache
def report_programs() -> None:
    """Write reports of what is compiled from now on, where SHARDC_REPORT_TO says so; from one process of a job."""
    folder = job_config().report_to
    if folder is not None:
        compiled_programs().watch(ReportFolder(folder).add)
