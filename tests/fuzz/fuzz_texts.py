"""Mutates program texts, and prints those that end in anything but a program or an error of ours::

    python tests/fuzz/fuzz_texts.py hlo|stablehlo FIRST LAST

A process of its own, with a limit of memory, since a mutant may end or fill it.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import logging
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance_data import conformance_folder
from text_mutator import corpus, mutate, shrink
from text_runs import outcome

TESTS = Path(__file__).resolve().parent.parent


def texts(kind: str) -> list[str]:
    folder = conformance_folder()
    if kind == "hlo":
        files = [
            *corpus(folder / "hlo", "*.hlo"),
            *corpus(TESTS / "partitioner" / "regressions", "*.hlo"),
            *corpus(TESTS.parent / "examples", "*.hlo"),
        ]
    else:
        files = [*corpus(folder / "stablehlo_interpret", "*.mlir"), *corpus(folder / "stablehlo", "*.mlir", 6_000)]
    return [p.read_text(encoding="utf-8") for p in files]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["hlo", "stablehlo"])
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    options = parser.parse_args()
    faulthandler.enable()
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    originals = texts(options.kind)
    kinds: collections.Counter[str] = collections.Counter()
    begin = time.monotonic()
    for seed in range(options.first, options.last):
        if seed % 1000 == 0:
            print(f"at seed {seed}, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
        mutant = mutate(originals[seed % len(originals)], originals, seed)
        what = outcome(options.kind, mutant)
        if what:
            name = what.split(": ")[0]
            kinds[name] += 1
            print(f"seed {seed}: {what}", flush=True)
            if kinds[name] == 1 and "TooSlow" not in what:
                small = shrink(mutant, lambda t, name=name: outcome(options.kind, t).startswith(name))
                print("  " + "\n  ".join(small[:2000].split("\n")), flush=True)
    count, seconds = options.last - options.first, time.monotonic() - begin
    print(f"{count} mutants of {len(originals)} texts, {sum(kinds.values())} failures, {seconds:.0f} s")
    for what, count in kinds.most_common():
        print(f"  {count} x {what}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
