"""Processes that are forked from one of a job: they have its memory, but must not use what connects it with others."""

from __future__ import annotations

import os

from shardc.hlo.errors import EnvironmentProblem

__all__ = ["refuse_forked"]


def refuse_forked(process: int) -> None:
    """Raise `EnvironmentProblem` unless this process is number ``process``, which belongs to a job of several."""
    if os.getpid() != process:
        raise EnvironmentProblem(
            f"this process was forked from a rank (pid {process}), and cannot compute together with the other ranks",
            fix='start processes by "spawn", as in multiprocessing.get_context("spawn"): they compute on virtual '
            "devices of their own",
        )
