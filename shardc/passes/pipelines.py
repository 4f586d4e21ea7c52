"""Named pipelines: the passes that the stages run, with the options that a caller of the stage has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from shardc.compiler.lower.described import accelerator_passes
from shardc.compiler.lower.for_gpu import gpu_passes
from shardc.compiler.lower.pipeline import PASSES, apply_overlap
from shardc.costs.machines.machine import Machine, load_machine
from shardc.hlo.config import Config
from shardc.hlo.errors import InputError
from shardc.hlo.ir.ir import Module
from shardc.hlo.passes import Pass
from shardc.hlo.text.printer import XLA_FORM
from shardc.native.gpu.target import GPU_ARCHS, gpu_target
from shardc.partitioner.options import Choice, PartitionOptions
from shardc.partitioner.partition import PREPARATION, optimisation, pipeline

__all__ = ["PIPELINES", "Pipeline"]


@runtime_checkable
class Pipeline(Protocol):
    """Passes that go together: ``name`` and ``why`` as a pass has them, options as fields."""

    @property
    def name(self) -> str: ...

    @property
    def why(self) -> str: ...

    def passes(self, module: Module, config: Config) -> tuple[Pass, ...]:
        """What is done to ``module``, in order."""
        ...


@dataclass(frozen=True, slots=True)
class PreparePipeline:
    """What is done to a propagated program before it is partitioned."""

    name: str = "prepare-pipeline"
    why: str = "operations are rewritten so that their parts can be computed separately"

    def passes(self, module: Module, config: Config) -> tuple[Pass, ...]:
        del module, config
        return PREPARATION


@dataclass(frozen=True, slots=True)
class OptimisePipeline:
    """What is done to a partitioned program; options as `shardc.partitioner.options.PartitionOptions` has them."""

    machine: Machine | None = None
    windowed_einsum: Choice = "auto"
    pipelined_loops: Choice = "auto"
    decomposed_rings: bool = False
    name: str = "optimise-pipeline"
    why: str = "collectives become fewer and smaller, and overlap with computation"

    def passes(self, module: Module, config: Config) -> tuple[Pass, ...]:
        del module, config
        options = PartitionOptions(self.windowed_einsum, self.pipelined_loops, self.decomposed_rings)
        return optimisation(self.machine, options)


@dataclass(frozen=True, slots=True)
class PartitionPipeline:
    """What `shardc partition` does to a propagated program: prepare, partition, optimise."""

    machine: Machine | None = None
    windowed_einsum: Choice = "auto"
    pipelined_loops: Choice = "auto"
    decomposed_rings: bool = False
    name: str = "partition-pipeline"
    why: str = "a program with all its shardings becomes the one that every device runs"

    def passes(self, module: Module, config: Config) -> tuple[Pass, ...]:
        del module, config
        options = PartitionOptions(self.windowed_einsum, self.pipelined_loops, self.decomposed_rings)
        return pipeline(self.machine, options)


@dataclass(frozen=True, slots=True)
class LowerPipeline:
    """What a per-device program goes through before code for this computer is emitted."""

    name: str = "lower-pipeline"
    why: str = "operations become ordered kernels for CPUs"

    def passes(self, module: Module, config: Config) -> tuple[Pass, ...]:
        return apply_overlap(PASSES, module, config)


@dataclass(frozen=True, slots=True)
class LowerGpuPipeline:
    """What a per-device program goes through before code for a GPU of ``arch`` is emitted."""

    arch: str = "sm_90"
    name: str = "lower-gpu-pipeline"
    why: str = "operations become ordered kernels for GPUs"

    def passes(self, module: Module, config: Config) -> tuple[Pass, ...]:
        if self.arch not in GPU_ARCHS:
            raise InputError(
                f"unknown architecture {self.arch!r}", where=self.name, fix=f"use one of {', '.join(GPU_ARCHS)}"
            )
        maker = "rocm" if self.arch.startswith("gfx") else "cuda"
        return gpu_passes(module, gpu_target(f"{maker}:{self.arch}"), config)


@dataclass(frozen=True, slots=True)
class LowerDescribedPipeline:
    """What a per-device program goes through before it is simulated on an accelerator."""

    machine: Machine | None = None
    name: str = "lower-described-pipeline"
    why: str = "operations become ordered kernels, as compilers for a described accelerator make them"

    def passes(self, module: Module, config: Config) -> tuple[Pass, ...]:
        del module
        return accelerator_passes(self.machine or load_machine("h100-dgx"), config)


@dataclass(frozen=True, slots=True)
class XlaFormPipeline:
    """What a partitioned program goes through before it is printed for XLA."""

    name: str = "xla-form-pipeline"
    why: str = "XLA compiles the result without changing it"

    def passes(self, module: Module, config: Config) -> tuple[Pass, ...]:
        del module, config
        return XLA_FORM


_LISTED: tuple[Pipeline, ...] = (
    PreparePipeline(),
    OptimisePipeline(),
    PartitionPipeline(),
    XlaFormPipeline(),
    LowerPipeline(),
    LowerGpuPipeline(),
    LowerDescribedPipeline(),
)

#: By name, with the options that they have by default.
PIPELINES: Mapping[str, Pipeline] = MappingProxyType({p.name: p for p in _LISTED})
