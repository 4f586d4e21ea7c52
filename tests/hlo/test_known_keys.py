"""Misspelled keys of files are named, with what was meant."""

from __future__ import annotations

import pytest

from shardc.hlo.errors import InputError
from shardc.hlo.known_keys import require_known
from shardc.hlo.units import parse_bytes


def test_an_unknown_key_comes_with_the_near_one() -> None:
    require_known({"size": 8, "size_source": "a page"}, ["size"], "a level", "here", lambda k: k.endswith("_source"))
    with pytest.raises(InputError, match=r"a level has no key 'siz'\n.*where: here\n.*fix: did you mean size\?"):
        require_known({"siz": 8}, ["size", "kind"], "a level", "here")
    with pytest.raises(InputError, match="fix: use size, kind, or leave it out"):
        require_known({"colour": 8}, ["size", "kind"], "a level", "here")


def test_how_a_size_is_written_is_told_for_the_place() -> None:
    with pytest.raises(InputError, match="fix: --memory 40GiB, 80GB or a number of bytes"):
        parse_bytes("6 Megs", "--memory")
    with pytest.raises(InputError, match='fix: flops = "4 GiB", "8 GB" or a number of bytes'):
        parse_bytes("6 Megs", "b.toml: flops", 'flops = "4 GiB", "8 GB"')
