"""``python -m shardc.launcher.jobs.rank_main [-m module | -c code | file] args``: one rank of `shardc mpiexec`.

Runs Python code like ``python`` itself, after checking that the launcher fits the MPI library, and ends the whole
job when the code fails, also through ``sys.exit(1)``.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType

from shardc.hlo.errors import EnvironmentProblem, InputError
from shardc.launcher.jobs.affinity import bind_rank
from shardc.launcher.jobs.failures import describe, end_forked, end_job, exit_code_of, tell_before_mpi
from shardc.launcher.jobs.mpi_environment import check, detect_launcher, find_library
from shardc.launcher.jobs.orphans import end_with_parent
from shardc.launcher.jobs.rank_process import running_mpi

__all__ = ["main"]

_JAX_CLUSTER = "jax._src.clusters.mpi4py_cluster"


def main() -> int:
    launcher, process = detect_launcher(), os.getpid()
    end_with_parent(signal.SIGKILL)
    _write_whole_lines()
    sys.meta_path.insert(0, _JaxClusters())
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
        if os.getpid() != process:
            end_forked(e)
        code = exit_code_of(e)
        if code and (mpi := running_mpi()) is not None:
            end_job(e, mpi)
        if isinstance(e, SystemExit):
            raise
        tell_before_mpi(launcher.rank if launcher else 0, describe(e))
        return code
    if os.getpid() != process:
        end_forked(SystemExit(0))
    return 0


def _write_whole_lines() -> None:
    """Write each line at once, also if Python's output is unbuffered, so that lines of several ranks do not mix."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)


class _JaxClusters:
    """Lets ``jax.distributed.initialize()`` find rank and size without arguments: JAX asks mpi4py only where a program
    says so, and here it is known that it is right. JAX is not imported for that."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _JAX_CLUSTER:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _JaxClusterLoader(name, spec.origin)
        return spec


class _JaxClusterLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        module.Mpi4pyCluster.opt_in_only_method = False


if __name__ == "__main__":
    sys.exit(main())
