"""Several hosts on one machine: network namespaces joined by a bridge, and a launcher that enters them like ssh."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

#: Stands for ssh: ``[options] HOST COMMAND...``. The host gets a name of its own.
_ENTER = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
exec ip netns exec "$PREFIX$host" unshare --uts sh -c "hostname $host; exec $*"
"""


@dataclass(frozen=True)
class Network:
    """Hosts by address, the address of this machine among them, and the program that starts commands on them."""

    hosts: tuple[str, ...]
    here: str
    enter: Path

    def mpiexec(self, mpiexec: Path, ranks: tuple[int, ...]) -> list[str]:
        """The beginning of a command line of MPICH's launcher: so many ranks on each host."""
        places = ",".join(f"{h}:{n}" for h, n in zip(self.hosts, ranks, strict=True))
        options = ["-localhost", self.here, "-launcher", "ssh", "-launcher-exec", str(self.enter)]
        return [str(mpiexec), *options, "-hosts", places, "-n", str(sum(ranks))]


@contextlib.contextmanager
def network(hosts: int, folder: Path) -> Iterator[Network]:
    """So many hosts; the test is skipped where they may not be made. Nothing of them is left behind."""
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("no several hosts: iproute2 or unshare is missing")
    net = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
    name = f"sc{os.getpid() % 100000}"
    prefix = f"{name}-"
    addresses = tuple(f"{net}.{k + 2}" for k in range(hosts))
    try:
        try:
            _ip(f"link add {name} type bridge")
            _ip(f"addr add {net}.1/24 dev {name}")
            _ip(f"link set {name} up")
            for k, address in enumerate(addresses):
                space = prefix + address
                _ip(f"netns add {space}")
                _ip(f"link add {name}a{k} type veth peer name {name}b{k}")
                _ip(f"link set {name}a{k} master {name} up")
                _ip(f"link set {name}b{k} netns {space}")
                _ip(f"-n {space} addr add {address}/24 dev {name}b{k}")
                _ip(f"-n {space} link set {name}b{k} up")
                _ip(f"-n {space} link set lo up")
            subprocess.run(["unshare", "--uts", "true"], check=True, capture_output=True, timeout=10)
        except subprocess.CalledProcessError as e:
            pytest.skip(f"no several hosts: network namespaces are not allowed here ({e.stderr.decode().strip()})")
        enter = folder / "enter"
        enter.write_text(_ENTER.replace("$PREFIX", prefix))
        enter.chmod(0o755)
        yield Network(addresses, f"{net}.1", enter)
    finally:
        for address in addresses:
            _remove(prefix + address)
        subprocess.run(["ip", "link", "del", name], check=False, capture_output=True)


def _ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True, capture_output=True, timeout=10)


def _remove(space: str) -> None:
    """End what still runs in a namespace, and take it away."""
    found = subprocess.run(["ip", "netns", "pids", space], check=False, capture_output=True, text=True)
    for pid in found.stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)
