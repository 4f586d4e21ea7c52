"""Settings from the environment, read once into one frozen object."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import platformdirs

from shardc.hlo.ir.custom_calls import CustomCalls
from shardc.hlo.variables import VARIABLES, read_variable

__all__ = ["OVERLAPS", "CodeSettings", "Config"]

#: What `Config.overlap` may be.
OVERLAPS = ("never", "auto", "always")


@dataclass(frozen=True, slots=True)
class Config:
    """The SHARDC_* environment, see docs/reference/environment.md.

    ``dump_to`` is the folder of the programs after each pass, ``record_to`` that of the flight recorders of a job's
    ranks. Both are ``SHARDC_DUMP_TO``; only rank 0 has ``dump_to`` and ``report_to``, as all would write the same.

    ``num_threads`` 0 means one per available core. ``tune`` is the number of seconds in which compiling may try other
    choices, 0 for none. ``cache_bytes`` bounds the cache folder, 0 for no bound.

    ``overlap``: collectives go on beside computing ``never``, ``always`` where they can, or ``auto``: where the
    ``machine`` (a name or a file, see `shardc.costs.machines.machine`; empty: this computer) can do both and it pays.
    Memory may grow by the factor ``overlap_memory`` for it.
    ``profile`` names a file of measured times, which count instead of the machine's. ``spare_cores``: nobody computes
    on them, so this computer can do both; the launcher knows.

    ``shared_memory``: ranks of a node address each other's memory (otherwise they send messages). ``transfer_thread``:
    a thread of its own does transfers that were started; None: where a core is spare.

    On GPUs: ``tf32``: products of f32 may round their operands to TF32, for tensor cores; ``deterministic``: floats
    that a scatter adds up are added in a fixed order, otherwise as they come.

    ``server`` is the URL of a compile service that is asked for executables, ``token`` what it knows this user by,
    ``server_key`` what signs its answers, in hexadecimal (empty: it is asked for that too).

    ``custom_calls`` are not from the environment: the user's own targets, which a program takes along.
    """

    dump_to: Path | None = None
    record_to: Path | None = None
    report_to: Path | None = None
    dump_passes: str = ""
    cache_dir: Path = Path(platformdirs.user_cache_dir("shardc"))
    cache_bytes: int = 2_000_000_000
    check: bool = False
    timeout: float = 60.0
    num_threads: int = 0
    tune: float = 0.0
    overlap: str = "auto"
    overlap_memory: float = 1.1
    machine: str = ""
    profile: Path | None = None
    spare_cores: bool = False
    shared_memory: bool = True
    transfer_thread: bool | None = None
    tf32: bool = False
    deterministic: bool = True
    server: str = ""
    token: str = field(default="", repr=False)
    server_key: str = field(default="", repr=False)
    custom_calls: CustomCalls = field(default_factory=dict, hash=False)

    @staticmethod
    def from_environment(environ: Mapping[str, str] = os.environ) -> Config:
        """Read the variables; a malformed one is an `InputError` that names it (`shardc.hlo.variables`)."""
        given = {name: value for name in VARIABLES if (value := read_variable(name, environ)) is not None}
        values: dict[str, Any] = {f: given[name] for name, f in _FIELDS.items() if name in given}
        values["record_to"] = values.get("dump_to")
        if "SHARDC_CACHE_SIZE" in given:
            values["cache_bytes"] = int(1e6 * given["SHARDC_CACHE_SIZE"])
        return Config(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSettings:
    """The settings of a user that generated code and schedules depend on, wherever the work is done."""

    overlap: str = "auto"
    overlap_memory: float = 1.1
    spare_cores: bool = False
    tf32: bool = False
    deterministic: bool = True

    @classmethod
    def of(cls, config: Config) -> Self:
        """Those of ``config``."""
        return cls(**{f.name: getattr(config, f.name) for f in fields(cls)})

    def within(self, config: Config) -> Config:
        """``config`` with these settings."""
        return replace(config, **{f.name: getattr(self, f.name) for f in fields(self)})


#: The fields that are variables as they are; a token of its own counts more than one in a file.
_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "SHARDC_TOKEN_FILE": "token",
        **{f"SHARDC_{f.name.upper()}": f.name for f in fields(Config) if f"SHARDC_{f.name.upper()}" in VARIABLES},
    }
)
