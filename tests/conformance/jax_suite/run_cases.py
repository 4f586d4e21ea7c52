"""``python tests/conformance/jax_suite/run_cases.py [FILE...]`` runs JAX's own tests by hand.

    run_cases.py array_test                       its cases that pass on XLA:CPU, on shardc
    run_cases.py pjit_test --only donat --why     those with this in their names, with tracebacks
    run_cases.py --sample 5 --seed 3              five cases of each file, drawn
    run_cases.py api_test --platform cpu --baseline   learns what passes on XLA:CPU, and writes the list

It prints each case that does not pass, then how many failed for the same last line, the most first.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2])]

from case_lists import PASSING, expected_failures, passing_on_cpu, write_list  # noqa: E402
from children import Children, Outcome, suite_folder  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", help="without .py; default: all")
    parser.add_argument("--platform", choices=("shardc", "cpu"), default="shardc")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose name has it")
    parser.add_argument("--sample", type=int, metavar="N", help="so many cases per file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--why", action="store_true", help="the traceback of each case that does not pass")
    parser.add_argument(
        "--folder", type=Path, default=suite_folder(), help="where the files are (default: %(default)s)"
    )
    parser.add_argument("--all", action="store_true", help="also cases that are in no list")
    parser.add_argument("--baseline", action="store_true", help="write what passes into the list of XLA:CPU")
    options = parser.parse_args()
    files = options.files or sorted(p.stem for p in options.folder.glob("*_test.py"))
    known, expected = passing_on_cpu(), expected_failures()
    counts, causes = Counter[str](), Counter[str]()
    passed: dict[str, list[str]] = {}
    with Children(options.platform, options.folder) as children:
        for file in files:
            everything = options.all or options.baseline or file not in known
            cases = [c for c in (children.names(file) if everything else known[file]) if re.search(options.only, c)]
            if options.sample is not None and options.sample < len(cases):
                cases = sorted(random.Random(f"{options.seed} {file}").sample(cases, options.sample))
            passed[file] = []
            for case in cases:
                outcome = children.run(file, case)
                counts[outcome.kind] += 1
                if outcome.kind == "passed":
                    passed[file].append(case)
                tell(file, case, outcome, (file, case) in expected, options.why)
                if outcome.kind != "passed":
                    causes[f"{outcome.kind}: {last_line(outcome.why)}"] += 1
    print("\n".join(f"{n:5}  {cause}" for cause, n in causes.most_common()))
    print(", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())) + f" on {options.platform}")
    if options.baseline:
        PASSING.write_text(write_list({**known, **passed}), encoding="utf-8")
    return int(any(counts[k] for k in ("failed", "aborted", "hung")))


def tell(file: str, case: str, outcome: Outcome, expected: bool, why: bool) -> None:
    if outcome.kind != "passed" or expected or outcome.seconds > 20:
        words = "" if outcome.kind == "passed" else last_line(outcome.why)
        mark = " (expected to fail)" if expected else ""
        print(f"{outcome.kind:8} {outcome.seconds:6.1f} s  {file} {case}{mark}: {words}", flush=True)
        if why and outcome.kind not in ("passed", "skipped"):
            print("    " + outcome.why.strip().replace("\n", "\n    "), flush=True)


def last_line(text: str) -> str:
    """What a traceback ends with, shortened; of an abort what the process said first."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    said = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Warning|Interrupt)\b", line)]
    return (said[-1] if said else lines[-1] if lines else "")[:200]


if __name__ == "__main__":
    sys.exit(main())
