"""The routines' objects, compiled once on a machine."""

from __future__ import annotations

from shardc.compiler.cache.cache import fetch_object
from shardc.compiler.cache.sources import source_digest
from shardc.hlo.config import Config
from shardc.native.llvm.jit import compile_ir
from shardc.native.llvm.target import Target
from shardc.native.memory.transposing import transposing_module

__all__ = ["routine_objects"]


def routine_objects(target: Target, config: Config) -> tuple[bytes, ...]:
    """The objects to be linked together, the step's last; from the cache on disk, if they are there."""
    key = source_digest()
    return (
        fetch_object(f"transposing {key}", target, config, lambda: compile_ir(transposing_module(target), target)),
        fetch_object(f"products {key}", target, config, lambda: _products(target)),
        fetch_object(f"routine step {key}", target, config, lambda: _step(target)),
    )


def _products(target: Target) -> bytes:
    from shardc.native.routines.products import products_module

    return compile_ir(products_module(target), target)


def _step(target: Target) -> bytes:
    from shardc.native.routines.routine_step import routine_step_ir  # with the compiler of the low-level language

    return compile_ir(routine_step_ir(target), target)
