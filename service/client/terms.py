"""Arguments of the stages as fields of an order: specs, meshes, machines and settings become plain data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from shardc.costs.machines.machine import machine_file, machine_names, read_machine, split_mapping
from shardc.hlo.config import Config
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.mesh import Mesh
from shardc.native.llvm.target import Target
from shardc.service.orders import Cpu, Settings
from shardc.sharding.notations.partition_spec import spec_text

__all__ = [
    "cpu_of",
    "machine_terms",
    "mesh_sizes",
    "need_none_of",
    "settings_terms",
    "spec_text",
    "watches",
]

#: What a machine of a file may be called in an order.
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


def mesh_sizes(mesh: Mesh | None) -> dict[str, int]:
    """Axes and sizes; `UnsupportedError` for a mesh whose devices are in another order."""
    if mesh is None:
        return {}
    if mesh.device_ids is not None:
        raise UnsupportedError(f"the mesh {mesh} has its own device order, which an order to a service cannot express")
    return dict(mesh.axes)


def machine_terms(machine: str | Path | None) -> dict[str, str]:
    """Fields of an order for a machine: its name where it comes along with shardc, else its description too.

    Raises `InputError` for unknown machines and bad descriptions.
    """
    if not machine:
        return {}
    (path, counts), (plain, mapping) = machine_file(machine), split_mapping(machine)
    if path.stem in machine_names() and plain.partition(":")[0] == path.stem:
        return {"machine": str(machine)}
    stem = _NOT_IN_NAMES.sub("-", path.stem.lower()).strip("-") or "machine"
    shown = stem + (f":{counts}" if counts else "") + (f"@{mapping}" if mapping else "")
    return {"machine": shown, "machine_text": read_machine(path)[1]}


def settings_terms(config: Config) -> dict[str, Any]:
    """Fields of an order for what generated code and schedules depend on."""
    if config.profile is None:
        return {"settings": Settings.of(config)}
    from shardc.compiler.measured import read_measured_text

    measured = read_measured_text(config.profile)
    return {"settings": Settings.of(config), "measured": measured}


def need_none_of(config: Config) -> str:
    """Why a service cannot compile by these settings, beginning a sentence; empty where it can."""
    if config.custom_calls:
        return "your custom calls exist only in this process"
    if config.tune:
        return "tuning measures the computer that it runs on"
    return watches(config)


def watches(config: Config) -> str:
    """Why these settings want every stage to be done here, as `need_none_of` says it; empty where they do not."""
    if config.check or config.dump_to is not None:
        return "SHARDC_CHECK and SHARDC_DUMP_TO need a compiler in this process"
    return ""


def cpu_of(target: Target) -> Cpu:
    """A processor as orders have it."""
    return Cpu(triple=target.triple, cpu=target.cpu, features=target.features)
