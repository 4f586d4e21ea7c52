"""One rank of a job in which rank 0 alone does the last call, or does another one: ``missing_worker.py CASE``."""

from __future__ import annotations

import sys
import time

import shardc
import shardc.numpy as np


def main(case: str) -> None:
    alone = shardc.process_index() == 0
    if alone or case != "first":
        u = np.zeros((64, 64))
        u[0] = 1.0
    if case in ("first", "mean") and alone:
        float(u.mean())
    if case.startswith("gather") and alone:
        shardc.gather(u)
    if case == "sleep" and not alone:
        time.sleep(50)
    if case in ("gather-and-more", "sleep"):
        shardc.gather(u * 2)


if __name__ == "__main__":
    main(sys.argv[1])
