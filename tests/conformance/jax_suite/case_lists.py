"""Which of JAX's tests are judged: those that pass on XLA:CPU, and of them those that are expected to fail here.

Both lists are checked in beside this file. ``passes_on_cpu.txt`` has the cases that pass on JAX's own CPU
backend: a file's name at the left margin, a class under it, and in each further line a test, and behind a tab the
numbers of its drawn cases.
``expected_failures.toml`` has a table per reason.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

__all__ = ["expected_failures", "passing_on_cpu", "read_list", "write_list"]

HERE = Path(__file__).parent
PASSING, EXPECTED = HERE / "passes_on_cpu.txt", HERE / "expected_failures.toml"


def passing_on_cpu() -> dict[str, list[str]]:
    """File -> its cases as ``Class.test``."""
    return read_list(PASSING.read_text(encoding="utf-8"))


def expected_failures() -> dict[tuple[str, str], str]:
    """(file, case) -> reason."""
    data = tomllib.loads(EXPECTED.read_text(encoding="utf-8"))
    found: dict[tuple[str, str], str] = {}
    for group in data.get("failures", []):
        for file, cases in group["cases"].items():
            for case in cases:
                if (file, case) in found:
                    raise ValueError(f"{EXPECTED.name} lists {file}: {case} twice")
                found[file, case] = group["reason"]
    return found


def read_list(text: str) -> dict[str, list[str]]:
    files: dict[str, list[str]] = {}
    file = class_ = ""
    for line in text.splitlines():
        if line.startswith("    "):
            test, _, numbers = line[4:].partition("\t")
            files[file] += [f"{class_}.{test}{n}" for n in (_numbers(numbers) if numbers else ("",))]
        elif line.startswith("  "):
            class_ = line.strip()
        elif line and not line.startswith("#"):
            file = line
            files[file] = []
    return files


def write_list(files: Mapping[str, Iterable[str]]) -> str:
    """The text that ``read_list`` reads: cases by class, and runs of numbers as one word."""
    lines = []
    for file, cases in sorted(files.items()):
        lines.append(file)
        split = sorted(_split(c) for c in cases)
        for class_, of_class in groupby(split, key=lambda c: c[0]):
            lines.append(f"  {class_}")
            for test, found in groupby(of_class, key=lambda c: c[1]):
                numbers = [n for _, _, n in found]
                lines += [f"    {test}"] if -1 in numbers else []
                runs = ",".join(_runs([n for n in numbers if n >= 0]))
                lines += [f"    {test}\t{runs}"] if runs else []
    return "\n".join(lines) + "\n"


def _split(case: str) -> tuple[str, str, int]:
    """Class, name without its number, number or -1; a name whose number has zeros in front has none."""
    class_, _, name = case.partition(".")
    found = re.fullmatch(r"(.*?\D)(0|[1-9]\d*)", name)
    return (class_, found[1], int(found[2])) if found else (class_, name, -1)


def _runs(numbers: list[int]) -> Iterator[str]:
    for _, run in groupby(enumerate(numbers), key=lambda x: x[1] - x[0]):
        found = [n for _, n in run]
        yield str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}"


def _numbers(text: str) -> list[int]:
    numbers: list[int] = []
    for word in text.split(","):
        first, _, last = word.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers
