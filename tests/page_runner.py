"""Runs the blocks of a documentation page in order, in one folder, and compares what they print with what it shows.

A page is Markdown. Its Python blocks share one namespace; its shell blocks run line by line; a ``text`` block right
behind a block is what that block prints. Comments in front of a block say what a reader sees from the text:

    <!-- file: train.py -->          the block is the contents of a file
    <!-- not run: needs a GPU -->    the block only has to parse, for the reason given
    <!-- any output -->              the block behind shows a part of what is printed, or figures of one machine
    <!-- figures vary -->            numbers of the block behind depend on the processor: any number agrees with any
    <!-- exit code: 2 -->            the commands end with this code, and print what goes to stderr too

In shown output ``...`` stands for anything, on a line of its own for any lines. Space does not count. Numbers are
compared exactly: bytes, counts and simulated times do not depend on the machine that runs the page.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shardc.cli.app import main

__all__ = ["Block", "PageRun", "agree", "read_blocks", "shell_lines"]

_FENCE = re.compile(r"^(?P<marks>(?:<!--.*?-->\n)*)```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
#: Commands that start processes, or go on until they are stopped.
_STARTERS = frozenset(("mpiexec", "serve", "demo"))
_MARK = re.compile(r"<!-- (file|not run|any output|figures vary|exit code)(?:: (.*?))? -->")


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code: its page and line, and what the page shows as its output (None: nothing is shown)."""

    page: str
    line: int
    language: str
    text: str
    file: str = ""
    not_run: str = ""
    exit_code: int = 0
    shown: str | None = None
    figures_vary: bool = False


def read_blocks(page: str, text: str) -> list[Block]:
    """All blocks of a page but those that show output."""
    found: list[Block] = []
    end = 0
    for match in _FENCE.finditer(text):
        marks = {kind: value or "yes" for kind, value in _MARK.findall(match["marks"])}
        behind = found and not text[end : match.start()].strip()
        end = match.end()
        language, code = match["language"], match["text"]
        if language == "text":
            if behind and "any output" not in marks:
                found[-1] = replace(found[-1], shown=code, figures_vary="figures vary" in marks)
            continue
        line = text.count("\n", 0, match.start("text")) + 1
        exit_code = int(marks.get("exit code", 0))
        found.append(Block(page, line, language, code, marks.get("file", ""), marks.get("not run", ""), exit_code))
    return found


def shell_lines(text: str) -> Iterator[str]:
    """The commands of a shell block; a line that ends in a backslash goes on."""
    for line in text.replace("\\\n", " ").splitlines():
        if shlex.split(line, comments=True):
            yield line


@dataclass(slots=True)
class PageRun:
    """The run of one page in ``folder``; the namespace of its Python blocks."""

    folder: Path
    scope: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})

    def __enter__(self) -> PageRun:
        return self

    def __exit__(self, *error: object) -> None:
        """Ends processes that the page started, and forgets modules that it wrote: the next page may have namesakes."""
        for value in self.scope.values():
            if isinstance(value, subprocess.Popen):
                value.kill()
                with value:  # waits, and closes its pipes
                    pass
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", "") or "").startswith(f"{self.folder}{os.sep}"):
                del sys.modules[name]

    def run(self, block: Block) -> None:
        """Runs one block; AssertionError where it fails or prints something else than the page shows."""
        where = f"{block.page}:{block.line}"
        if block.not_run:
            if block.language == "python":
                ast.parse(block.text, where)
            return
        if block.file:
            (self.folder / block.file).write_text(block.text, encoding="utf-8")
            return
        if block.language == "python":
            printed = self._python(block.text, Path(block.page).name)
        elif block.language in ("sh", "bash"):
            printed = "".join(self._shell(line, where, block.exit_code) for line in shell_lines(block.text))
        else:
            return
        if block.shown is not None:
            assert agree(printed, block.shown, block.figures_vary), (
                f"{where} prints\n{printed}\nand the page shows\n{block.shown}"
            )

    def _command(self, words: list[str], where: str, exit_code: int) -> str:
        """A command of ours that starts no other process, within this one: a process of its own imports for seconds."""
        printed, said = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said), contextlib.chdir(self.folder):
            code = main(words)
        assert code == exit_code, f"{where}\nends with {code}\n{printed.getvalue()}\n{said.getvalue()}"
        return printed.getvalue() + (said.getvalue() if exit_code else "")

    def _python(self, code: str, file: str) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.chdir(self.folder):
            sys.path.insert(0, str(self.folder))
            try:
                exec(compile(code, file, "exec"), self.scope)
            finally:
                sys.path.remove(str(self.folder))
        return printed.getvalue()

    def _shell(self, line: str, where: str, exit_code: int) -> str:
        words = shlex.split(line, comments=True)
        if words[0] == "shardc" and words[1] not in _STARTERS and not re.search(r"[|<>;&$`]|--ranks|^ *[A-Z_]+=", line):
            return self._command(words[1:], f"{where}: {line}", exit_code)
        environment = dict(os.environ)
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        environment["COLUMNS"] = "100"
        done = subprocess.run(
            ["/bin/sh", "-c", line], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        ended = f"{where}: {line}\nends with {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == exit_code, ended
        return done.stdout + (done.stderr if exit_code else "")


def agree(printed: str, shown: str, figures_vary: bool = False) -> bool:
    """Is ``printed`` what ``shown`` says, apart from white space, what ``...`` leaves out and figures that vary?"""
    parts = [re.escape(_plain(part, figures_vary)) for part in shown.split("...")]
    return re.fullmatch(r" ?" + ".*?".join(parts) + r" ?", _plain(printed, figures_vary), re.DOTALL) is not None


def _plain(text: str, figures_vary: bool) -> str:
    without_rules = re.sub(r"[─━-]{3,}", "-", text)
    compared = re.sub(r"\d[\d,.]*(e-?\d+)?", "N", without_rules) if figures_vary else without_rules
    return re.sub(r"\s+", " ", compared)
