"""HLO texts from XLA's own tests: read exactly when XLA's parser accepts them, and printed back to what it accepts."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from xla_judge import XlaParser

from shardc.hlo.errors import Location, ShardcError
from shardc.hlo.ir.ir import Module
from shardc.hlo.text.equal import difference
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.reader import read_hlo

SPELLINGS = tomllib.loads((Path(__file__).parent / "newer_spellings.toml").read_text(encoding="utf-8"))


def known(table: str, text: str) -> str:
    """What the text has of what releases of jaxlib differ in, by ``table``; empty when there is nothing."""
    return next((row["what"] for row in SPELLINGS[table] if re.search(row["pattern"], text, re.DOTALL)), "")


def read_or_refusal(text: str, name: str) -> Module | ShardcError:
    try:
        return read_hlo(text, name)
    except ShardcError as e:
        return e


def printed_as_the_same(module: Module) -> str:
    printed = print_module(module)
    found = difference(module, read_hlo(printed))
    assert found is None, found
    return printed


def test_text(hlo_case: Path, xla_parser: XlaParser) -> None:
    text = hlo_case.read_text(encoding="utf-8")
    verdict = xla_parser(text)
    ours = read_or_refusal(text, hlo_case.name)
    if isinstance(ours, ShardcError):
        if verdict.accepted:
            if laxer := known("accepted_later", text):
                pytest.skip(f"unsupported, as older jaxlib refuses it too: {laxer}")
            raise ours
        assert isinstance(ours.where, Location) and ours.where.line > 0, f"refused without a line: {ours}"
        return
    printed = printed_as_the_same(ours)
    if not verdict.accepted:
        other = known("spelling", text) or known("refused_later", text)
        assert other, f"read, but XLA says {verdict.error}"
        pytest.skip(f"unsupported by this jaxlib: {other}")
    again = xla_parser(printed)
    assert again.accepted, f"printed, but XLA says {again.error}\n{printed}"
