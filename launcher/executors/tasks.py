"""The tasks that children know, by name: children take names and bytes, never code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from shardc.hlo.errors import InputError

__all__ = ["TASKS", "Progress", "Task", "find_task"]

#: Hears how far a task is: plain data, ``stage`` (a word), and where it is known ``done`` of how many (``of``).
Progress = Callable[[Mapping[str, Any]], None]

#: Bytes in, bytes out. What it raises of our family, its caller raises.
Task = Callable[[bytes, Progress], bytes]

#: Where they are, as ``module:function``. The modules are imported in the child, when a task is first asked for.
TASKS: Mapping[str, str] = MappingProxyType(
    {
        "assess": "shardc.analysis.sweep.workers:assess_task",
        "order": "shardc.service.workers.carry_out:carry_out_task",
    }
)


def find_task(name: str, tasks: Mapping[str, str] = TASKS) -> Task:
    """The task called ``name`` in the table ``tasks``; `InputError` for others."""
    if name not in tasks:
        raise InputError(f"no task {name!r}", fix=f"use one of {', '.join(tasks)}")
    module, _, function = tasks[name].partition(":")
    task: Task = getattr(import_module(module), function)
    return task
