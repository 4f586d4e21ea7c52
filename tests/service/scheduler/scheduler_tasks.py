"""The task "order" as tests of the scheduler have it done in real children: quickly, slowly, or not at all."""

from __future__ import annotations

import ctypes
import os
import time

from shardc.hlo.errors import AnnotationError
from shardc.launcher.executors.tasks import Progress
from shardc.service.orders import from_json
from shardc.service.workers.package import ORDER_FILE, pack, unpack

__all__ = ["TASKS", "carry_out"]

TASKS = {"order": "scheduler_tasks:carry_out"}


def carry_out(payload: bytes, progress: Progress) -> bytes:
    """The order's name says what happens."""
    files, _ = unpack(payload)
    name = from_json(files.pop(ORDER_FILE)).name
    progress({"stage": name, "pid": os.getpid()})
    if name == "crash":
        ctypes.CDLL(None).abort()
    if name == "sleep":
        time.sleep(600)
    if name == "refuse":
        raise AnnotationError("unknown axis", where="w1", fix="name another")
    if name == "odd":
        return pack({"../../odd.txt": b""}, {})
    return pack({"report.json": b"{}"}, {"programs": sorted(files)})
