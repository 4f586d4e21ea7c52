"""What is asked about devices, their descriptions and memories; all of it is there from the beginning."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardc.frontends.pjrt.abi.devices import (
    DeviceAddressableMemoriesArgs,
    DeviceClearMemoryStatsArgs,
    DeviceDefaultMemoryArgs,
    DeviceDescriptionAttributesArgs,
    DeviceDescriptionDebugStringArgs,
    DeviceDescriptionIdArgs,
    DeviceDescriptionKindArgs,
    DeviceDescriptionProcessIndexArgs,
    DeviceDescriptionToStringArgs,
    DeviceGetDescriptionArgs,
    DeviceIsAddressableArgs,
    DeviceLocalHardwareIdArgs,
    DeviceMemoryStatsArgs,
    MemoryAddressableByDevicesArgs,
    MemoryDebugStringArgs,
    MemoryIdArgs,
    MemoryKindArgs,
    MemoryKindIdArgs,
    MemoryToStringArgs,
)
from shardc.frontends.pjrt.native.records import DescriptionRecord, DeviceRecord, MemoryRecord
from shardc.native.lowlevel.builtins import as_u8, exported, fill_memory
from shardc.native.lowlevel.kinds import address
from shardc.native.lowlevel.records import RELAXED, address_of

__all__ = ["DEVICE_FUNCTIONS"]

_STATS = DeviceMemoryStatsArgs.offset_of("bytes_in_use")
_STATS_END = DeviceMemoryStatsArgs.offset_of("peak_pool_bytes_is_set") + 1


@exported("shardc_pjrt_description_id")
def _description_id(args: DeviceDescriptionIdArgs) -> address:
    args.id = DescriptionRecord.at(args.device_description).id
    return 0


@exported("shardc_pjrt_description_process_index")
def _description_process_index(args: DeviceDescriptionProcessIndexArgs) -> address:
    args.process_index = DescriptionRecord.at(args.device_description).process_index
    return 0


@exported("shardc_pjrt_description_attributes")
def _description_attributes(args: DeviceDescriptionAttributesArgs) -> address:
    description = DescriptionRecord.at(args.device_description)
    args.num_attributes = description.num_attributes
    args.attributes = description.attributes
    return 0


@exported("shardc_pjrt_description_kind")
def _description_kind(args: DeviceDescriptionKindArgs) -> address:
    text = DescriptionRecord.at(args.device_description).kind
    args.device_kind = text.data
    args.device_kind_size = text.nbytes
    return 0


@exported("shardc_pjrt_description_debug_string")
def _description_debug_string(args: DeviceDescriptionDebugStringArgs) -> address:
    text = DescriptionRecord.at(args.device_description).debug_string
    args.debug_string = text.data
    args.debug_string_size = text.nbytes
    return 0


@exported("shardc_pjrt_description_to_string")
def _description_to_string(args: DeviceDescriptionToStringArgs) -> address:
    text = DescriptionRecord.at(args.device_description).to_string
    args.to_string = text.data
    args.to_string_size = text.nbytes
    return 0


@exported("shardc_pjrt_device_description")
def _device_description(args: DeviceGetDescriptionArgs) -> address:
    args.device_description = address_of(DeviceRecord.at(args.device).description)
    return 0


@exported("shardc_pjrt_device_is_addressable")
def _device_is_addressable(args: DeviceIsAddressableArgs) -> address:
    args.is_addressable = as_u8(DeviceRecord.at(args.device).is_addressable != 0)
    return 0


@exported("shardc_pjrt_device_local_hardware_id")
def _device_local_hardware_id(args: DeviceLocalHardwareIdArgs) -> address:
    args.local_hardware_id = DeviceRecord.at(args.device).local_hardware_id
    return 0


@exported("shardc_pjrt_device_memories")
def _device_memories(args: DeviceAddressableMemoriesArgs) -> address:
    device = DeviceRecord.at(args.device)
    args.memories = device.memories
    args.num_memories = device.num_memories
    return 0


@exported("shardc_pjrt_device_default_memory")
def _device_default_memory(args: DeviceDefaultMemoryArgs) -> address:
    args.memory = DeviceRecord.at(args.device).default_memory
    return 0


@exported("shardc_pjrt_device_memory_stats")
def _device_memory_stats(args: DeviceMemoryStatsArgs) -> address:
    """Bytes in use, their peak, how many blocks there were, the largest, and the limit where one is known."""
    device = DeviceRecord.at(args.device)
    fill_memory(address_of(args) + _STATS, 0, _STATS_END - _STATS)
    args.bytes_in_use = device.bytes_in_use.load(RELAXED)
    args.peak_bytes_in_use = device.peak_bytes.load(RELAXED)
    args.peak_bytes_in_use_is_set = 1
    args.num_allocs = device.allocations.load(RELAXED)
    args.num_allocs_is_set = 1
    args.largest_alloc_size = device.largest.load(RELAXED)
    args.largest_alloc_size_is_set = 1
    args.bytes_limit = device.bytes_limit
    args.bytes_limit_is_set = as_u8(device.bytes_limit != 0)
    return 0


@exported("shardc_pjrt_device_clear_memory_stats")
def _device_clear_memory_stats(args: DeviceClearMemoryStatsArgs) -> address:
    """Count from now on."""
    device = DeviceRecord.at(args.device)
    device.peak_bytes.store(device.bytes_in_use.load(RELAXED), RELAXED)
    device.allocations.store(0, RELAXED)
    device.largest.store(0, RELAXED)
    return 0


@exported("shardc_pjrt_memory_id")
def _memory_id(args: MemoryIdArgs) -> address:
    args.id = MemoryRecord.at(args.memory).id
    return 0


@exported("shardc_pjrt_memory_kind")
def _memory_kind(args: MemoryKindArgs) -> address:
    text = MemoryRecord.at(args.memory).kind
    args.kind = text.data
    args.kind_size = text.nbytes
    return 0


@exported("shardc_pjrt_memory_kind_id")
def _memory_kind_id(args: MemoryKindIdArgs) -> address:
    args.kind_id = MemoryRecord.at(args.memory).kind_id
    return 0


@exported("shardc_pjrt_memory_debug_string")
def _memory_debug_string(args: MemoryDebugStringArgs) -> address:
    text = MemoryRecord.at(args.memory).debug_string
    args.debug_string = text.data
    args.debug_string_size = text.nbytes
    return 0


@exported("shardc_pjrt_memory_to_string")
def _memory_to_string(args: MemoryToStringArgs) -> address:
    text = MemoryRecord.at(args.memory).to_string
    args.to_string = text.data
    args.to_string_size = text.nbytes
    return 0


@exported("shardc_pjrt_memory_devices")
def _memory_devices(args: MemoryAddressableByDevicesArgs) -> address:
    memory = MemoryRecord.at(args.memory)
    args.devices = address_of(memory.devices)
    args.num_devices = memory.num_devices
    return 0


#: By PJRT's names.
DEVICE_FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "DeviceDescription_Id": _description_id,
    "DeviceDescription_ProcessIndex": _description_process_index,
    "DeviceDescription_Attributes": _description_attributes,
    "DeviceDescription_Kind": _description_kind,
    "DeviceDescription_DebugString": _description_debug_string,
    "DeviceDescription_ToString": _description_to_string,
    "Device_GetDescription": _device_description,
    "Device_IsAddressable": _device_is_addressable,
    "Device_LocalHardwareId": _device_local_hardware_id,
    "Device_AddressableMemories": _device_memories,
    "Device_DefaultMemory": _device_default_memory,
    "Device_MemoryStats": _device_memory_stats,
    "Device_ClearMemoryStats": _device_clear_memory_stats,
    "Memory_Id": _memory_id,
    "Memory_Kind": _memory_kind,
    "Memory_Kind_Id": _memory_kind_id,
    "Memory_DebugString": _memory_debug_string,
    "Memory_ToString": _memory_to_string,
    "Memory_AddressableByDevices": _memory_devices,
}
