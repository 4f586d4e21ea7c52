"""`job_config`: the settings of a process, as one rank of its job has them."""

from __future__ import annotations

import os
from dataclasses import replace

from shardc.hlo.config import Config
from shardc.hlo.variables import warn_of_unknown
from shardc.launcher.jobs.affinity import local_place, processors_here
from shardc.launcher.jobs.mpi_environment import detect_launcher

__all__ = ["job_config", "spare_cores"]


def job_config() -> Config:
    """The settings of the environment; in a job only rank 0 dumps, and there may be cores for transfers."""
    config, launcher = Config.from_environment(), detect_launcher()
    if launcher is None or launcher.rank == 0:
        warn_of_unknown()
    if launcher is None:
        return config
    _, ranks = local_place(os.environ) or (0, launcher.size)
    config = replace(config, spare_cores=spare_cores(ranks, config.transfer_thread))
    return replace(config, dump_to=None, report_to=None) if launcher.rank > 0 else config


def spare_cores(ranks: int, transfer_thread: bool | None = None) -> bool:
    """Whether each of ``ranks`` on this node has a core for transfers in addition to the one that computes."""
    return len(processors_here()) >= 2 * ranks > 0 if transfer_thread is None else transfer_thread
