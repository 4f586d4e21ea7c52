"""The explorer's files: whole, equal every time, with a policy that lets only them and the report's script run."""

from __future__ import annotations

import re

import pytest

from shardc.analysis.report.page import digest, page_parts
from shardc.frontends.load import load_program
from shardc.service.explorer.files import SCRIPTS, files, policy


def test_files_are_the_same_every_time() -> None:
    assert files() == files()


def test_the_page_names_only_files_that_are_there() -> None:
    served = files()
    page = served["index.html"][1].decode()
    named = re.findall(r'(?:href|src)="explorer/([^"]+)"', page)
    assert set(named) == {"icon.svg", "explorer.css", "explorer.js"} <= set(served)
    asked = re.findall(r"file: '([^']+)'", served["explorer.js"][1].decode())
    assert len(asked) == 2 and set(asked) <= set(served)
    assert "//" not in re.sub(r"<!--.*?-->", "", page), "an address of somebody else's"


def test_the_script_has_every_part() -> None:
    text = files()["explorer.js"][1].decode()
    places = [text.index(line) for line in map(first_line, SCRIPTS)]
    assert places == sorted(places)


def first_line(name: str) -> str:
    from importlib import resources

    return (resources.files("shardc.service.explorer") / name).read_text(encoding="utf-8").splitlines()[0]


@pytest.mark.parametrize(
    "word", ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "localStorage"]
)
def test_nothing_makes_markup_of_text_or_keeps_a_token(word: str) -> None:
    assert word not in files()["explorer.js"][1].decode()


def test_the_policy_knows_the_report_and_nothing_else() -> None:
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy().split("; ")}
    style, script = map(digest, page_parts())
    assert rules["script-src"] == ["'self'", f"'{script}'"] and rules["style-src"] == ["'self'", f"'{style}'"]
    assert rules["default-src"] == ["'none'"] and "unsafe" not in policy() and "http" not in policy()


@pytest.mark.parametrize("name", ["perceptron.hlo", "transformer.hlo"])
def test_examples_are_programs(name: str) -> None:
    assert load_program(files()[name][1], name).arg_names
