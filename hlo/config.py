"""Settings from the environment, read once into one frozen object."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from shardc.hlo.errors import InputError

if TYPE_CHECKING:
    from shardc.hlo.custom_calls import CustomCalls

__all__ = ["OVERLAPS", "Config"]

#: What `Config.overlap` may be.
OVERLAPS = ("never", "auto", "always")

_KEY = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True)
class Config:
    """The SHARDC_* environment, see docs/cli.md. ``num_threads`` 0 means one per available core; ``tune`` are seconds
    that compiling may spend on trying other choices, 0 for none. ``cache_bytes`` bounds the cache folder (0: nothing
    does).

    ``overlap``: collectives go on beside computing ``never``, ``always`` where they can, or ``auto``: where the
    ``machine`` (a name or a file, see `shardc.collectives.machine`; empty: this computer) can do both and it pays.
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
        """Read the variables; a malformed one is an `InputError` that names it."""

        def number(name: str, default: float) -> float:
            text = environ.get(name, "")
            try:
                value = float(text) if text else default
            except ValueError:
                value = -1.0
            if value < 0:
                raise InputError(f"{name}={text!r} is not a number >= 0", where=f"environment variable {name}")
            return value

        pattern = environ.get("SHARDC_DUMP_PASSES", "")
        try:
            re.compile(pattern)
        except re.error as e:
            raise InputError(f"SHARDC_DUMP_PASSES is not a regular expression: {e}", where=pattern) from None
        dump = environ.get("SHARDC_DUMP_TO", "")
        cache = environ.get("SHARDC_CACHE_DIR", "")
        profile = environ.get("SHARDC_PROFILE", "")
        overlap = environ.get("SHARDC_OVERLAP", "") or "auto"
        if overlap not in OVERLAPS:
            raise InputError(
                f"SHARDC_OVERLAP={overlap!r}", where="environment variable", fix=f"use one of {', '.join(OVERLAPS)}"
            )
        thread = environ.get("SHARDC_TRANSFER_THREAD", "")
        return Config(
            dump_to=Path(dump) if dump else None,
            dump_passes=pattern,
            cache_dir=Path(cache) if cache else Path(platformdirs.user_cache_dir("shardc")),
            cache_bytes=int(1e6 * number("SHARDC_CACHE_SIZE", 2000.0)),
            check=environ.get("SHARDC_CHECK", "") not in ("", "0"),
            timeout=number("SHARDC_TIMEOUT", 60.0),
            num_threads=int(number("SHARDC_NUM_THREADS", 0)),
            tune=number("SHARDC_TUNE", 0.0),
            overlap=overlap,
            overlap_memory=max(1.0, number("SHARDC_OVERLAP_MEMORY", 1.1)),
            machine=environ.get("SHARDC_MACHINE", ""),
            profile=Path(profile) if profile else None,
            shared_memory=environ.get("SHARDC_SHARED_MEMORY", "") != "0",
            transfer_thread=thread != "0" if thread else None,
            tf32=environ.get("SHARDC_TF32", "") not in ("", "0"),
            deterministic=environ.get("SHARDC_DETERMINISTIC", "") != "0",
            server=environ.get("SHARDC_SERVER", ""),
            token=environ.get("SHARDC_TOKEN", "") or _first_line(environ.get("SHARDC_TOKEN_FILE", "")),
            server_key=_key(environ.get("SHARDC_SERVER_KEY", "")),
        )


def _first_line(file: str) -> str:
    """The first line of the file that SHARDC_TOKEN_FILE names, if it does."""
    if not file:
        return ""
    return next(iter(_text(file, "SHARDC_TOKEN_FILE").split("\n")), "").strip()


def _key(given: str) -> str:
    """A key in hexadecimal: SHARDC_SERVER_KEY itself, or the contents of the file that it names."""
    if not given or _KEY.fullmatch(given):
        return given.lower()
    text = _text(given, "SHARDC_SERVER_KEY").strip()
    if not _KEY.fullmatch(text):
        raise InputError(
            f"{given} holds no key", where="environment variable SHARDC_SERVER_KEY", fix="64 hexadecimal digits"
        )
    return text.lower()


def _text(file: str, variable: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is no text"
        raise InputError(f"{file} cannot be read: {reason}", where=f"environment variable {variable}") from None
