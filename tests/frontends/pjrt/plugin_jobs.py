"""Processes of a job under the plug-in, for tests."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from plugin_environment import plugin_environment

#: How long a job may take.
SECONDS = 180


def start(line: Sequence[str], folder: Path, devices: int = 1, **more: str) -> subprocess.Popen[str]:
    environment = plugin_environment("shardc", folder, devices, **more)
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, *line], env=environment, stdout=pipe, stderr=pipe, text=True)


def mpiexec(ranks: int, *line: str) -> list[str]:
    return ["-m", "shardc", "mpiexec", "-n", str(ranks), sys.executable, *line]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])
