"""The link between a device and its host: descriptions, and what a copy takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardc.costs.machines.host_link import HostLink
from shardc.costs.machines.machine import load_machine, machine_names
from shardc.hlo.errors import InputError

MACHINE = """
[device]
memory_bytes = 1000
memory_bandwidth = 1e9
[device.flops]
f32 = 1e9
[host]
name = "wire"
bandwidth = 2e9
%s
[[levels]]
bandwidth = 1e9
latency = 1e-6
"""


def described(tmp_path: Path, more: str = "") -> Path:
    file = tmp_path / "wired.toml"
    file.write_text(MACHINE % more, encoding="utf-8")
    return file


def test_every_accelerator_has_a_link_to_its_host() -> None:
    for name in machine_names():
        machine = load_machine(name)
        assert (machine.host is None) == (machine.device.kind == "cpu"), name


def test_a_copy_takes_its_latency_and_its_bytes(tmp_path: Path) -> None:
    link = load_machine(described(tmp_path, "latency = 1e-3\nefficiency = 0.5\nmemory_bytes = 5")).host
    assert link == HostLink("wire", 2e9, 1e-3, 0.5, 5)
    assert link.seconds(1_000_000) == pytest.approx(2e-3)
    assert (link.channel(to_host=True), link.channel(to_host=False)) == ("wire to host", "wire from host")


@pytest.mark.parametrize("more", ["efficiency = 1.5", "latency = -1", "memory_bytes = 'much'"])
def test_what_makes_no_sense_is_refused(tmp_path: Path, more: str) -> None:
    with pytest.raises(InputError, match=more.partition(" ")[0]):
        load_machine(described(tmp_path, more))
