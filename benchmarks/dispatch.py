"""What a call of a small program takes: unmodified JAX on shardc's plug-in beside XLA:CPU, in alternating processes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from worker import Worker

__all__ = ["HEAD", "rows"]

ROUNDS = 7
HEAD = ("a call, until its results are there", "shardc", "XLA", "shardc / XLA", "goal")
#: By case of the worker: what it is, and what it is to take.
_CASES = {
    "tiny": ("1 argument, 1 device", "1.5 of XLA's"),
    "10": ("10 arguments and results, 1 device", ""),
    "300": ("300 arguments and results, 1 device", "500 us"),
    "tiny on 4": ("1 argument, 4 devices, with a sum over them", "2 of XLA's"),
    "10 on 4": ("10 arguments and results, 4 devices", ""),
    "300 on 8": ("300 arguments and results, 8 devices", "600 us"),
    "np.asarray": ("1 argument, 1 device, the result as a NumPy array", ""),
    "device_put": ("an array of 16 floats from NumPy to a device", ""),
}


def rows() -> Sequence[tuple[str, ...]]:
    flags = "--xla_force_host_platform_device_count=8"
    sides = [Worker("dispatch_worker.py", flags=flags, platform=p) for p in ("shardc", "cpu")]
    found = []
    for case, (title, goal) in _CASES.items():
        pairs = [[float(side.ask(case)["microseconds"]) for side in sides] for _ in range(ROUNDS)]
        ours, theirs = (statistics.median(p[k] for p in pairs) for k in range(2))
        ratio = statistics.median(a / b for a, b in pairs)
        found.append((title, f"{ours:.1f} us", f"{theirs:.1f} us", f"{ratio:.2f}", goal))
    for side in sides:
        side.close()
    return found
