"""What an outcome depends on besides its candidate: settings of the process that asks, and files that they name.

Workers run on other hosts or in other processes, without these settings and files: both travel with the candidate,
files as their content.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from shardc.costs.machines.machine import machine_file, machine_names, split_mapping
from shardc.hlo.config import CodeSettings, Config
from shardc.hlo.errors import InputError

__all__ = ["PortableMachine", "WorkerSettings"]


@dataclass(frozen=True, slots=True)
class PortableMachine:
    """A machine as `shardc.costs.machines.machine.load_machine` takes it: by ``name``, or where its description is a
    file of the user's with the ``text`` of that. ``mapping`` is where mesh axes lie on it."""

    name: str
    counts: str = ""
    text: str = ""
    mapping: str = ""

    @staticmethod
    def of(machine: str | Path, off_host: bool) -> PortableMachine:
        """Raises `InputError` for machines that are unknown, and for this computer where workers are ``off_host``."""
        path, counts = machine_file(machine)
        plain, mapping = split_mapping(machine)
        name = plain.removesuffix(f":{counts}")
        if name in machine_names():
            return PortableMachine(name, counts, mapping=mapping)
        if name not in ("this", "this-virtual"):
            return PortableMachine(path.stem, counts, path.read_text(encoding="utf-8"), mapping)
        if off_host:
            what = f"machine {name!r} means another computer on every worker"
            raise InputError(what, fix=f"name its description: --machine {path}")
        return PortableMachine(name, counts, mapping=mapping)

    def here(self, folder: Path) -> str:
        """What `load_machine` takes in this process, whose ``folder`` has a copy of the text."""
        counts = (f":{self.counts}" if self.counts else "") + (f"@{self.mapping}" if self.mapping else "")
        if not self.text:
            return self.name + counts
        path = folder / f"{self.name}.toml"
        path.write_text(self.text, encoding="utf-8")
        return f"{path}{counts}"


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """``machine`` is the one that candidates are simulated on; the rest is what else of a `Config` counts."""

    machine: PortableMachine
    settings: CodeSettings = field(default_factory=CodeSettings)
    partitioned_for: PortableMachine | None = None
    measured: str = ""

    @staticmethod
    def of(machine: str | Path, config: Config, *, off_host: bool) -> WorkerSettings:
        """Those of this process; ``off_host``: workers are on other computers. Raises `InputError` for what cannot be
        read."""
        try:
            measured = "" if config.profile is None else config.profile.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise InputError(f"the measured times cannot be read: {e}", where=str(config.profile)) from None
        return WorkerSettings(
            PortableMachine.of(machine, off_host),
            CodeSettings.of(config),
            partitioned_for=PortableMachine.of(config.machine, off_host) if config.machine else None,
            measured=measured,
        )

    def here(self, folder: Path) -> tuple[str, Config]:
        """The machine's name and the settings in a process that has ``folder`` for itself."""
        profile = folder / "measured.json"
        if self.measured:
            profile.write_text(self.measured, encoding="utf-8")
        config = Config(
            machine="" if self.partitioned_for is None else self.partitioned_for.here(folder),
            profile=profile if self.measured else None,
        )
        return self.machine.here(folder), self.settings.within(config)
