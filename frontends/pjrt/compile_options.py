"""What a program is compiled for: how many devices, which ones, and what propagation may decide."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CompileOptions"]


@dataclass(frozen=True)
class CompileOptions:
    """``devices`` are ids of the client's devices, by replica and partition: where the program runs (empty: where the
    client has it run). Propagation decides about shardings of ``free_arguments`` and ``free_results``, one flag per
    array or one for all."""

    num_replicas: int = 1
    num_partitions: int = 1
    devices: tuple[int, ...] = ()
    free_arguments: tuple[bool, ...] = (False,)
    free_results: tuple[bool, ...] = (False,)

    @property
    def num_devices(self) -> int:
        return self.num_replicas * self.num_partitions
