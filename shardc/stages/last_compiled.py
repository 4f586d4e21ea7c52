"""What JAX compiled and ran through the plug-in, as shardc's stages and as pages."""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from shardc.hlo.errors import InputError, ShardcError
from shardc.launcher.driver.compiled import job_config
from shardc.launcher.run.output_files import write_text
from shardc.stages.stages import Compiled, as_stage, remote_compiler

if TYPE_CHECKING:
    from shardc.frontends.pjrt.compile import CompiledProgram

__all__ = ["ReportFolder", "last_compiled", "report_programs"]

log = logging.getLogger("shardc")


def last_compiled(name: str = "*") -> Compiled:
    """Return the newest program that JAX compiled with shardc in this process. The JAX script needs no change.

    ``name`` is the function's name, or a pattern such as ``"train*"``. The last 32 programs are remembered, without
    those of one device that have less than 8 kB of StableHLO. ``partitioned()`` of the result has the report and the
    explanation. Calls and ``profile`` take flat arguments, one per parameter.

    Raises `InputError` if there is no such program; the message lists the known names.

    >>> import jax.numpy as jnp
    >>> train = shardc.jit(lambda x: jnp.tanh(x @ x.T).sum(), mesh=mesh, in_shardings=P("data"))
    >>> float(train(np.zeros((8, 4), np.float32)))
    0.0
    >>> shardc.last_compiled().partitioned().num_devices
    4
    """
    from shardc.frontends.pjrt.compiled_programs import compiled_programs

    found = compiled_programs().find(name)
    if found is None:
        known = ", ".join(dict.fromkeys(c.executable.name for c in compiled_programs()))
        if not known:
            raise InputError("nothing was compiled by shardc.jit yet", fix="call the function first")
        raise InputError(f"no program named {name} was compiled", fix=f"use one of: {known}")
    source = as_stage(found.program.source)
    return Compiled(found.executable, config=source.config, source=source.partition, remote=remote_compiler)


@dataclass(frozen=True)
class ReportFolder:
    """A folder that gets a page and a file of plain data for every program: ``NUMBER-NAME.html`` and ``.json``.

    A program that is compiled again has its page already, and of those that are small nobody looks at one without a
    collective: operations outside of a jit are such.
    """

    folder: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)
    written: set[str] = field(default_factory=set)

    def add(self, compiled: CompiledProgram) -> None:
        """Write both files of a program; what goes wrong is a warning, and not the program's trouble."""
        if compiled.fingerprint in self.written or (compiled.is_small and not compiled.executable.collectives):
            return
        self.written.add(compiled.fingerprint)
        name = re.sub(r"[^\w.-]+", "_", compiled.executable.name)[:80]
        stem = f"{next(self.numbers):04}-{name}"
        try:
            partitioned = as_stage(compiled.program.source).partition()
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
        from shardc.frontends.pjrt.compiled_programs import compiled_programs

        compiled_programs().watch(ReportFolder(folder).add)
