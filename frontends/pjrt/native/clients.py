"""What is asked about a client; all of it is there from the beginning."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardc.frontends.pjrt.abi.clients import (
    ClientAddressableDevicesArgs,
    ClientAddressableMemoriesArgs,
    ClientDefaultDeviceAssignmentArgs,
    ClientDevicesArgs,
    ClientLookupAddressableDeviceArgs,
    ClientLookupDeviceArgs,
    ClientPlatformNameArgs,
    ClientPlatformVersionArgs,
    ClientProcessIndexArgs,
    ClientTopologyDescriptionArgs,
    ClientUpdateGlobalProcessInfoArgs,
)
from shardc.frontends.pjrt.native.errors import INVALID_ARGUMENT, NOT_FOUND, fail
from shardc.frontends.pjrt.native.records import ClientRecord, DeviceRecord
from shardc.native.lowlevel.builtins import exported, static_text
from shardc.native.lowlevel.kinds import address, i32
from shardc.native.lowlevel.records import Record, Span, address_of

__all__ = ["CLIENT_FUNCTIONS"]

_NO_DEVICE_TEXT = static_text("shardc_pjrt_no_device_text", "there is no device of this number; see jax.devices()")
_FEW_DEVICES_TEXT = static_text(
    "shardc_pjrt_few_devices_text",
    "the computation needs more devices than there are; set SHARDC_NUM_DEVICES=N for N devices per process",
)
_ASSIGNMENT = ClientDefaultDeviceAssignmentArgs.offset_of("default_assignment")


class _AssignmentSlot(Record):
    """Where a device assignment is written: by replica, then by partition."""

    ids: Span[i32]


@exported("shardc_pjrt_client_platform_name")
def _platform_name(args: ClientPlatformNameArgs) -> address:
    text = ClientRecord.at(args.client).platform_name
    args.platform_name = text.data
    args.platform_name_size = text.nbytes
    return 0


@exported("shardc_pjrt_client_platform_version")
def _platform_version(args: ClientPlatformVersionArgs) -> address:
    text = ClientRecord.at(args.client).platform_version
    args.platform_version = text.data
    args.platform_version_size = text.nbytes
    return 0


@exported("shardc_pjrt_client_process_index")
def _process_index(args: ClientProcessIndexArgs) -> address:
    args.process_index = ClientRecord.at(args.client).process_index
    return 0


@exported("shardc_pjrt_client_topology")
def _topology(args: ClientTopologyDescriptionArgs) -> address:
    args.topology = ClientRecord.at(args.client).topology
    return 0


@exported("shardc_pjrt_client_devices")
def _devices(args: ClientDevicesArgs) -> address:
    client = ClientRecord.at(args.client)
    args.devices = address_of(client.devices)
    args.num_devices = client.num_devices
    return 0


@exported("shardc_pjrt_client_addressable_devices")
def _addressable_devices(args: ClientAddressableDevicesArgs) -> address:
    client = ClientRecord.at(args.client)
    args.addressable_devices = address_of(client.addressable_devices)
    args.num_addressable_devices = client.num_addressable_devices
    return 0


@exported("shardc_pjrt_client_memories")
def _memories(args: ClientAddressableMemoriesArgs) -> address:
    client = ClientRecord.at(args.client)
    args.addressable_memories = address_of(client.memories)
    args.num_addressable_memories = client.num_memories
    return 0


@exported("shardc_pjrt_client_lookup_device")
def _lookup_device(args: ClientLookupDeviceArgs) -> address:
    client = ClientRecord.at(args.client)
    for k in range(client.num_devices):
        if DeviceRecord.at(client.devices[k]).description.id == args.id:
            args.device = client.devices[k]
            return 0
    return fail(NOT_FOUND, _NO_DEVICE_TEXT)


@exported("shardc_pjrt_client_lookup_addressable_device")
def _lookup_addressable_device(args: ClientLookupAddressableDeviceArgs) -> address:
    client = ClientRecord.at(args.client)
    for k in range(client.num_addressable_devices):
        if DeviceRecord.at(client.addressable_devices[k]).local_hardware_id == args.local_hardware_id:
            args.addressable_device = client.addressable_devices[k]
            return 0
    return fail(NOT_FOUND, _NO_DEVICE_TEXT)


@exported("shardc_pjrt_client_default_device_assignment")
def _default_device_assignment(args: ClientDefaultDeviceAssignmentArgs) -> address:
    """The first devices: this process's where they are enough, as the client's own order has them otherwise."""
    client = ClientRecord.at(args.client)
    count = args.num_replicas * args.num_partitions
    if count > client.num_devices or count > args.default_assignment_size:
        return fail(INVALID_ARGUMENT, _FEW_DEVICES_TEXT)
    slot = _AssignmentSlot.at(address_of(args) + _ASSIGNMENT)
    for k in range(count):
        device = client.addressable_devices[k] if count <= client.num_addressable_devices else client.devices[k]
        slot.ids[k] = DeviceRecord.at(device).description.id
    return 0


@exported("shardc_pjrt_client_update_processes")
def _update_processes(args: ClientUpdateGlobalProcessInfoArgs) -> address:
    """What jax.distributed knows of processes, told by a thread of its own: the job's watchdog knows it earlier."""
    return 0


#: By PJRT's names.
CLIENT_FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "Client_PlatformName": _platform_name,
    "Client_PlatformVersion": _platform_version,
    "Client_ProcessIndex": _process_index,
    "Client_TopologyDescription": _topology,
    "Client_Devices": _devices,
    "Client_AddressableDevices": _addressable_devices,
    "Client_AddressableMemories": _memories,
    "Client_LookupDevice": _lookup_device,
    "Client_LookupAddressableDevice": _lookup_addressable_device,
    "Client_DefaultDeviceAssignment": _default_device_assignment,
    "Client_UpdateGlobalProcessInfo": _update_processes,
}
