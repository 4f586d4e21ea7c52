"""What a per-device program costs for choosing among plans: the bytes that it sends, the buffers that it is given."""

from __future__ import annotations

from shardc.compiler.lower.lowered import memory_analysis
from shardc.compiler.lower.pipeline import lower
from shardc.hlo.config import Config
from shardc.partitioner.plan.judge import Judge, judge_by_bytes

__all__ = ["judge_by_lowering", "judge_to_compile"]


def judge_by_lowering(config: Config) -> Judge:
    """Bytes on the wire and collectives of a step, arithmetic, and the peak memory that ``compile("cpu")`` says."""
    return judge_by_bytes(lambda module: float(memory_analysis(lower(module, config))["peak_bytes"]))


def judge_to_compile(config: Config) -> Judge | None:
    """What plans are judged by of a program that is compiled here; None on a described machine: its models."""
    return None if config.machine else judge_by_lowering(config)
