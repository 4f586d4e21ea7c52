"""All benchmarks with one command (``make bench``); prints the tables and writes them to docs/benchmarks.md on request.

python benchmarks/run.py [--write docs/benchmarks.md]
"""

from __future__ import annotations

import argparse
import os
import platform
from pathlib import Path

import compiler_speed
import partitioning
import propagation
import training_steps

NOTE = """# Benchmarks

Made by `make bench`. Times are medians; both sides run in turn within one process pair on one machine. Ratios are
XLA's time over ours: above 1 means that we are faster.
"""


def table(title: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [f"## {title}", "", "| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(r) + " |" for r in rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="write the tables to this Markdown file")
    options = parser.parse_args()
    machine = f"Machine: {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}.\n"
    parts = [
        NOTE,
        machine,
        table("Training steps on 4 devices", ("program", "what", "shardc", "XLA", "ratio"), training_steps.rows()),
        table(
            "The compiler's own speed",
            ("layers", "instructions", "devices", "read HLO text", "propagate", "partition", "XLA, all of it"),
            compiler_speed.rows(),
        ),
        table(
            "Propagation beside Shardy's pipeline (C++)",
            ("layers", "instructions", "devices", "shardc", "Shardy", "shardc / Shardy"),
            propagation.rows(),
        ),
        partitioning.section(),
        table("HLO text", ("instructions", "read", "print"), compiler_speed.text_rows()),
    ]
    text = "\n".join(parts)
    print(text)
    if options.write:
        options.write.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
