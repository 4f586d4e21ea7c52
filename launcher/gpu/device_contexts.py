"""Which GPU a process of a job has, and its memory there: one for all programs of the process."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from functools import lru_cache

from shardc.collectives.call.transport import Transport
from shardc.launcher.gpu.devices import find_gpus, gpu_errors, open_runtime
from shardc.launcher.gpu.memory import GpuContext
from shardc.native.gpu.runtime import Runtime
from shardc.native.gpu.target import GpuTarget, target_of

__all__ = ["context_of_process", "gpu_context"]


def gpu_context(target: GpuTarget, ordinal: int = 0) -> GpuContext:
    """The memory of a GPU in this process, the same at every call; `EnvironmentProblem` where it cannot be used."""
    return _context(_Opened(open_runtime(target, ordinal)))


@dataclass(frozen=True)
class _Opened:
    """A runtime, told from others by which it is."""

    runtime: Runtime

    def __hash__(self) -> int:
        return id(self.runtime)


@lru_cache(maxsize=64)
def _context(opened: _Opened) -> GpuContext:
    with gpu_errors():
        return GpuContext(opened.runtime)


def context_of_process(text: str, transport: Transport) -> tuple[GpuContext, bool]:
    """The GPU of this process for a program made for the target ``text``, and whether NCCL connects the job's GPUs.

    Ranks of a machine take its GPUs in turn. NCCL wants one for each rank: where ranks share one, or a rank lacks the
    library, collectives go through the host. All ranks call this together.
    """
    target = target_of(text)
    if target.kind == "emulated":
        return gpu_context(target), False
    mine = (socket.gethostname(), len(find_gpus().devices), _has_nccl())
    everybody = transport.exchange_objects(mine)
    before = sum(host == mine[0] for host, _, _ in everybody[: transport.process_index])
    alone = all(sum(other == host for other, _, _ in everybody) <= gpus for host, gpus, _ in everybody)
    nccl = transport.process_count > 1 and alone and all(has for _, _, has in everybody)
    return gpu_context(target, before % max(1, mine[1])), nccl


def _has_nccl() -> bool:
    from shardc.native.gpu.cuda.probe import library_problem

    return library_problem("NCCL") is None
