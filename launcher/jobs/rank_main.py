"""``python -m shardc.launcher.jobs.rank_main [-m module | -c code | file] args``: one rank of `shardc mpiexec`.

Runs Python code like ``python`` itself, after checking that the launcher fits the MPI library, and ends the whole
job when the code fails, also through ``sys.exit(1)``.
"""

from __future__ import annotations

import os
import signal
import sys

from shardc.hlo.errors import EnvironmentProblem, InputError
from shardc.launcher.jobs.affinity import bind_rank
from shardc.launcher.jobs.failures import describe, end_job, exit_code_of, tell_before_mpi
from shardc.launcher.jobs.mpi_environment import check, detect_launcher, find_library
from shardc.launcher.jobs.orphans import end_with_parent

__all__ = ["main"]


def main() -> int:
    launcher, process = detect_launcher(), os.getpid()
    end_with_parent(signal.SIGKILL)
    try:
        bind_rank()
        check(launcher, find_library())
        from mpi4py.run import run_command_line
    except (EnvironmentProblem, InputError) as e:
        tell_before_mpi(launcher.rank if launcher else 0, describe(e))
        return e.exit_code
    try:
        run_command_line(sys.argv[1:])
    except BaseException as e:
        if os.getpid() != process:  # a child that the program forked: it ends alone
            raise
        code = exit_code_of(e)
        mpi = sys.modules.get("mpi4py.MPI")
        if code and mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
            end_job(e, mpi)
        if isinstance(e, SystemExit):
            raise
        tell_before_mpi(launcher.rank if launcher else 0, describe(e))
        return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
