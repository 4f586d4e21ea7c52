"""Runs random JAX programs by their seeds and prints what goes wrong::

    python tests/fuzz/fuzz_jax.py FIRST LAST [--no-shrink]

A process of its own, since JAX has to make its twelve devices before it is used. Each failure is printed as a program
made small.
"""

from __future__ import annotations

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=12"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import argparse
import collections
import sys
import time

import jax
from jax_runs import case_of, failure
from jax_shrink import shrink, text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--no-shrink", action="store_true")
    options = parser.parse_args()
    kinds: collections.Counter[str] = collections.Counter()
    begin = time.monotonic()
    for seed in range(options.first, options.last):
        case = case_of(seed)
        what = failure(case)
        if what:
            kinds[what] += 1
            print(f"seed {seed}: {what}", flush=True)
            if not options.no_shrink and kinds[what] <= 3:
                print(text(shrink(case, lambda c, what=what: failure(c) == what)), flush=True)
        if seed % 50 == 49:
            jax.clear_caches()
            print(f"after seed {seed}, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    count = options.last - options.first
    print(f"{count} programs, {sum(kinds.values())} failures, {time.monotonic() - begin:.0f} s", flush=True)
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
