"""Machines and the cost model of collectives."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import shardc.costs.machines.machine as machines
from shardc.costs.machines.machine import load_machine, machine_names
from shardc.costs.network.collective_cost import Estimate, collective_cost
from shardc.costs.network.mapping import place
from shardc.hlo.errors import InputError
from shardc.hlo.ir.groups import AxisGroups
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef
from shardc.hlo.ir.types import DTYPES

FOLDER = Path(machines.__file__).parent
ROOT = Path(__file__).resolve().parents[2]


#: Per table: what its own `source` speaks of. Every other number has a source of its own.
COVERED: Mapping[str, frozenset[str]] = {
    "device": frozenset({"memory_bytes", "memory_bandwidth"}),
    "device.flops": frozenset({*DTYPES, "f8", "f4", "f32_high"}),
    "device.matrix": frozenset({"units", "shape"}),
    "host": frozenset({"bandwidth"}),
    "level": frozenset({"size", "bandwidth"}),
}
#: Numbers that the source of another one speaks of, too.
BESIDE: Mapping[str, str] = {"f32_default": "f32", "block": "slices", "wrap": "slices"}


def missing_sources(given: Mapping[str, Any]) -> list[str]:
    """The keys that a description lacks to say where each of its numbers comes from."""
    device, levels = given["device"], [(f"level {level['name']}", "level", level) for level in given["levels"]]
    tables = [("device", "device", device), ("device.flops", "device.flops", device["flops"])]
    tables += [
        (key, key, table)
        for key, table in (("device.matrix", device.get("matrix")), ("host", given.get("host")))
        if table
    ]
    missing = []
    for title, kind, table in [*tables, *levels]:
        if kind != "device.flops" and not table.get("source"):
            missing.append(f"{title}: source")
        for key, value in table.items():
            is_number = not key.endswith("source") and key not in ("name", "kind") and not isinstance(value, dict)
            named = table.get(f"{key}_source") or table.get(f"{BESIDE.get(key)}_source")
            if is_number and key not in COVERED[kind] and not named:
                missing.append(f"{title}: {key}_source")
    return missing


@pytest.mark.parametrize("name", machine_names())
def test_every_number_has_its_source(name: str) -> None:
    given = tomllib.loads((FOLDER / f"{name}.toml").read_text())
    assert load_machine(name).name == name == given["name"]
    assert not missing_sources(given), f"{name}.toml lacks these keys"


def test_missing_sources_are_named() -> None:
    given = tomllib.loads((FOLDER / "h100-dgx.toml").read_text())
    del given["device"]["source"], given["device"]["queued_source"], given["levels"][0]["latency_source"]
    assert missing_sources(given) == ["device: source", "device: queued_source", "level nvlink: latency_source"]


def test_the_machine_of_the_page_has_its_sources() -> None:
    page = (ROOT / "docs/internals/add-a-machine.md").read_text(encoding="utf-8")
    text = page.partition("<!-- file: cluster.toml -->\n```toml\n")[2].partition("```")[0]
    assert not missing_sources(tomllib.loads(text))


def test_an_unknown_machine_of_the_environment_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_MACHINE", "h1000")
    with pytest.raises(InputError, match="environment variable SHARDC_MACHINE"):
        load_machine("h1000")
    with pytest.raises(InputError, match="no machine 'h1001'") as told:
        load_machine("h1001")
    assert "SHARDC_MACHINE" not in str(told.value)


def test_unknown_machines_and_bad_descriptions_are_told(tmp_path: Path) -> None:
    for name in ("h1000", "h1000:64", "x" * 3000, "a\0b", "", ":8", "h100-dgx:"):
        with pytest.raises(InputError, match="no machine") as told:
            load_machine(name)
        assert "h100-dgx" in str(told.value)
    with pytest.raises(InputError, match="it is a folder"):
        load_machine(str(tmp_path))
    good = (FOLDER / "host.toml").read_text()
    for old, new, text in (
        ("bandwidth = 5e9", "bandwidth = -1", "bandwidth"),
        ('kind = "switch"', 'kind = "pigeon"', "pigeon"),
        ("[[levels]]", "[[level]]", "levels"),
        ("size = 0", "size = -3", "-3"),
        ("size = 0", "efficiency = 1.5", "fraction"),
        ("size = 0", "oversubscription = 0.5", "at least 1"),
        ("size = 0", "slices = [[2, 2], [2]]", "one rank"),
        ("size = 0", "slices = [[1, 1, 1, 1]]", "at most three"),
        ("size = 0", "block = 4", "and slices too"),
        ("size = 0", "wrap = true", "wrap"),
        ("size = 0", "start = -1", "give a positive number for start, or 0"),
        ("[device]", "[device]\ntransfers = true", "transfers is True"),
        ("[device]", "[device]\nqueued = -1", "queued is -1"),
        ("[device]", "[device]\ntransfers = 4\nqueued = 2", "less than the 4"),
        ("[device]", "[device", "fix: write TOML"),
        ("[device]", "devices = 8\n[device]", "a machine has no key 'devices'\n.*\n.*did you mean device"),
        ("[device]", "[device]\nmemory_byte = 8", "a device has no key 'memory_byte'"),
        ("size = 0", "siz = 0", "a level has no key 'siz'\n.*level memory\n.*did you mean size"),
        ("memory_bandwidth", "memory_latency", "memory_bandwidth is missing"),
    ):
        path = tmp_path / "bad.toml"
        assert old in good
        path.write_text(good.replace(old, new))
        with pytest.raises(InputError, match=text):
            load_machine(path)


def test_a_device_without_rates_is_told(tmp_path: Path) -> None:
    given = (FOLDER / "host.toml").read_text()
    path = tmp_path / "slow.toml"
    path.write_text("\n".join(line for line in given.splitlines() if not re.match(r"(f32|f64|bf16|f16|s8) =", line)))
    with pytest.raises(InputError, match="the device has no rate of products") as told:
        load_machine(path)
    assert "[device.flops]" in str(told.value.fix)


def test_numbers_in_other_units_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in machine_names():
        load_machine(name)
    assert not caplog.records
    path = tmp_path / "units.toml"
    path.write_text(
        "[device]\nmemory_bytes = 80\nmemory_bandwidth = 3e12\nflops = { f32 = 67, bf16 = 1e14 }\n"
        '[[levels]]\nname = "links"\nbandwidth = 450\nlatency = 3.0\n'
        '[host]\nname = "pcie"\nbandwidth = 64\nlatency = 10\nmemory_bytes = 250\n'
    )
    load_machine(path)
    load_machine(path)
    assert [r.getMessage().removeprefix(f"{path}: ").partition(":")[0] for r in caplog.records] == [
        "device, memory_bytes is 80 bytes",
        "device, flops of f32 is 67 operations per second",
        "level links, bandwidth is 450 bytes per second",
        "level links, latency is 3 seconds",
        "host, bandwidth is 64 bytes per second",
        "host, latency is 10 seconds",
        "host, memory_bytes is 250 bytes",
    ]
    path.write_text(path.read_text().replace("[device]\n", '[device]\nfused_attention = "no"\n'))
    with pytest.raises(InputError, match="fused_attention is 'no'"):
        load_machine(path)


def cost(machine: str, mesh: dict[str, int], opcode: str, nbytes: float, *axes: str) -> Estimate:
    made = Mesh(mesh)
    return collective_cost(
        place(load_machine(machine), made), opcode, nbytes, AxisGroups(made, tuple(AxisRef(a) for a in axes))
    )


def test_bandwidth_dominates_large_and_latency_small_transfers() -> None:
    large = cost("h100-dgx", {"x": 8}, "all-reduce", 8e9, "x")
    assert large.seconds == pytest.approx(2 * 8e9 * 7 / 8 / (0.8 * 450e9), rel=0.01)
    small = cost("h100-dgx", {"x": 8}, "all-reduce", 8, "x")
    assert small.algorithm == "recursive doubling"
    assert small.seconds == pytest.approx(2.5e-6 + 3 * 3e-6, rel=0.01)


def test_what_crosses_slow_links_is_reduced_first() -> None:
    """All ports of a node together are nearly as fast as one device among its neighbours."""
    both = cost("h100-dgx", {"x": 32}, "all-reduce", 8e9, "x")
    apart = cost("h100-dgx", {"x": 32, "y": 8}, "all-reduce", 8e9, "x")
    assert both.algorithm == "ring"
    assert both.seconds < apart.seconds / 5


@pytest.mark.parametrize("machine", ["h100-dgx", "tpu-v5p"])
def test_parts_of_an_all_reduce_cost_as_much_as_it(machine: str) -> None:
    n, mesh = 16e9, {"x": 16}
    whole = cost(machine, mesh, "all-reduce", n, "x").seconds
    parts = cost(machine, mesh, "reduce-scatter", n / 16, "x").seconds
    assert whole == pytest.approx(parts + cost(machine, mesh, "all-gather", n, "x").seconds, rel=1e-3)
