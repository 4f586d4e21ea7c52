"""Options of compilation that users give by name: those that XLA has are taken, and mean nothing here."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from shardc.frontends.pjrt.protos.messages import OptionOverrideProto
from shardc.hlo.errors import InputError

__all__ = ["check_xla_options"]

_READERS: Mapping[str, Callable[[str], object]] = {
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "int": int,
    "float": float,
}


def check_xla_options(given: Mapping[str, OptionOverrideProto]) -> None:
    """Raise `InputError` for names that XLA does not have, and for text that is no value of an option's kind."""
    for name, value in given.items():
        kind = _kinds().get(name)
        if kind is None:
            raise InputError(
                f"No such compile option: '{name}'",
                fix="leave it out: these are XLA's options, and shardc's are environment variables (SHARDC_...)",
            )
        text = value.string_field
        if text and kind in _READERS:
            try:
                _READERS[kind](text)
            except (KeyError, ValueError):
                raise InputError(f"While setting option {name}, '{text}' is not a valid {kind} value.") from None


@cache
def _kinds() -> Mapping[str, str]:
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {f"xla_{name}": kind for kind, names in table.items() for name in names.split()}
