"""Outcomes of earlier sweeps, kept in the cache folder: a candidate is assessed once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from shardc.analysis.sweep.assess import Outcome
from shardc.analysis.sweep.workers import Assessment
from shardc.compiler.cache.cache import bypasses_cache, code_settings, content_key
from shardc.compiler.cache.evict import mark_used
from shardc.costs.machines.machine import load_machine
from shardc.hlo.codec import plain
from shardc.hlo.config import Config
from shardc.hlo.errors import InputError
from shardc.hlo.files import write_atomically

__all__ = ["OutcomeCache"]


class OutcomeCache:
    """Outcomes by the program's content, candidate, settings, the machine's description and shardc's own sources.

    Without a ``config`` that uses the cache, and for programs that cannot be written down, nothing is kept.
    """

    def __init__(self, config: Config, machine: str) -> None:
        self._folder = None if bypasses_cache(config) else config.cache_dir / "sweeps"
        self._settings = (repr(load_machine(machine)), code_settings(config))

    def find(self, tasks: Sequence[Assessment]) -> list[Outcome | None]:
        """What is known of each task."""
        return [self._read(task) for task in tasks]

    def keep(self, task: Assessment, outcome: Outcome) -> None:
        path = self._path(task)
        if path is not None:
            with suppress(OSError):  # what cannot be kept is assessed again
                write_atomically(path, plain.to_json(outcome).encode())

    def _read(self, task: Assessment) -> Outcome | None:
        path = self._path(task)
        if path is None:
            return None
        try:
            found = plain.from_json(Outcome, path.read_bytes(), str(path))
        except (OSError, InputError):
            return None
        mark_used(path)
        return found

    def _path(self, task: Assessment) -> Path | None:
        if self._folder is None or not task.digest:
            return None
        c = task.candidate
        candidate = (c.devices, list(c.mesh.items()), c.name, list(c.specs.items()), c.auto)
        settings = replace(task.settings, machine="")  # where its description lies does not matter
        key = content_key(task.digest, candidate, settings, *self._settings)
        return self._folder / key[:2] / f"{key}.json"
