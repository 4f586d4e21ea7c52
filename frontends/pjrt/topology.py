"""Devices as JAX sees them: their descriptions and memories, and descriptions of devices that need not be there."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from shardc.compiler.cache.sources import source_digest
from shardc.frontends.pjrt.abi.topologies import (
    TopologyDescriptionAttributesArgs,
    TopologyDescriptionCreateArgs,
    TopologyDescriptionFingerprintArgs,
    TopologyDescriptionGetDeviceDescriptionsArgs,
    TopologyDescriptionPlatformNameArgs,
    TopologyDescriptionPlatformVersionArgs,
)
from shardc.frontends.pjrt.kept_memory import KeptMemory, take_text
from shardc.frontends.pjrt.native.records import DescriptionRecord
from shardc.hlo.errors import InputError
from shardc.hlo.version import VERSION
from shardc.native.llvm.target import host_target
from shardc.native.lowlevel.kinds import address, i64
from shardc.native.lowlevel.records import Record, address_of

__all__ = ["MEMORY_KINDS", "PLATFORM_NAME", "PLATFORM_VERSION", "DeviceTopology", "Topologies", "TopologyRecord"]

#: JAX decides by the platform's name what it lowers and how, so it is that of JAX's own backend for processors.
PLATFORM_NAME = "cpu"
PLATFORM_VERSION = f"shardc {VERSION}"
_DEVICE_KIND = "shardc"

#: The memories of a device, the default one first, as JAX's backend for processors has them: all are this machine's.
MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")


class TopologyRecord(Record):
    """PJRT_TopologyDescription."""

    vtable: address
    num_devices: i64


@dataclass(frozen=True)
class DeviceTopology:
    """Descriptions of devices by id."""

    record: TopologyRecord
    descriptions: tuple[DescriptionRecord, ...]
    table: int
    memory: KeptMemory

    @property
    def handle(self) -> int:
        return address_of(self.record)

    @staticmethod
    def of(owners: Sequence[int]) -> DeviceTopology:
        """Of a device per entry, which says whose process it is."""
        memory = KeptMemory()
        described = tuple(_describe(memory, n, process) for n, process in enumerate(owners))
        table = memory.numbers(map(address_of, described))
        return DeviceTopology(TopologyRecord(num_devices=len(owners)), described, table, memory)


def _describe(memory: KeptMemory, number: int, process: int) -> DescriptionRecord:
    record = DescriptionRecord(
        id=number,
        process_index=process,
        kind=memory.text(_DEVICE_KIND),
        debug_string=memory.text(f"shardc:{number}"),
        to_string=memory.text(f"ShardcDevice(id={number})"),
    )
    memory.keep(record)
    return record


class Topologies:
    """PJRT's functions about topologies; those that are made here stay."""

    def __init__(self) -> None:
        self._by_handle: dict[int, DeviceTopology] = {}
        self._memory = KeptMemory()

    def add(self, topology: DeviceTopology) -> int:
        self._by_handle[topology.handle] = topology
        return topology.handle

    def create(self, args: TopologyDescriptionCreateArgs) -> None:
        """The topology's name is its number of devices."""
        name = take_text(args.topology_name, args.topology_name_size) if args.topology_name_size else "1"
        if not name.isdecimal() or int(name) < 1:
            raise InputError(f"there is no topology {name!r}", fix="its name is the number of devices, such as '4'")
        args.topology = self.add(DeviceTopology.of((0,) * int(name)))

    def platform_name(self, args: TopologyDescriptionPlatformNameArgs) -> None:
        text = self._memory.text(PLATFORM_NAME)
        args.platform_name, args.platform_name_size = text.data, text.nbytes

    def platform_version(self, args: TopologyDescriptionPlatformVersionArgs) -> None:
        text = self._memory.text(PLATFORM_VERSION)
        args.platform_version, args.platform_version_size = text.data, text.nbytes

    def device_descriptions(self, args: TopologyDescriptionGetDeviceDescriptionsArgs) -> None:
        topology = self._by_handle[args.topology]
        args.descriptions, args.num_descriptions = topology.table, len(topology.descriptions)

    def fingerprint(self, args: TopologyDescriptionFingerprintArgs) -> None:
        """The same where compiled programs may be exchanged: JAX's cache of compilations goes by it."""
        owners = [d.process_index for d in self._by_handle[args.topology].descriptions]
        parts = f"{VERSION} {source_digest()} {host_target()} {owners}"
        args.fingerprint = int.from_bytes(hashlib.sha256(parts.encode()).digest()[:8], "little", signed=True)

    def attributes(self, args: TopologyDescriptionAttributesArgs) -> None:
        args.attributes, args.num_attributes = 0, 0
