"""Descriptions of devices that need not be there."""

from __future__ import annotations

from shardc.native.lowlevel.kinds import address, i32, i64
from shardc.native.lowlevel.records import Record

__all__ = [
    "TopologyDescriptionAttributesArgs", "TopologyDescriptionCreateArgs", "TopologyDescriptionDeserializeArgs",
    "TopologyDescriptionDestroyArgs", "TopologyDescriptionFingerprintArgs",
    "TopologyDescriptionGetDeviceDescriptionsArgs", "TopologyDescriptionGetMemorySpaceKindIdsArgs",
    "TopologyDescriptionMakeCanonicalShapeForMemorySpaceArgs", "TopologyDescriptionPlatformNameArgs",
    "TopologyDescriptionPlatformVersionArgs", "TopologyDescriptionSerializeArgs",
]  # fmt: skip


class TopologyDescriptionCreateArgs(Record):
    struct_size: i64
    extension_start: address
    topology_name: address
    topology_name_size: i64
    create_options: address
    num_options: i64
    topology: address


class TopologyDescriptionDestroyArgs(Record):
    struct_size: i64
    extension_start: address
    topology: address


class TopologyDescriptionPlatformVersionArgs(Record):
    struct_size: i64
    extension_start: address
    topology: address
    platform_version: address
    platform_version_size: i64


class TopologyDescriptionPlatformNameArgs(Record):
    struct_size: i64
    extension_start: address
    topology: address
    platform_name: address
    platform_name_size: i64


class TopologyDescriptionGetDeviceDescriptionsArgs(Record):
    struct_size: i64
    extension_start: address
    topology: address
    descriptions: address
    num_descriptions: i64


class TopologyDescriptionSerializeArgs(Record):
    struct_size: i64
    extension_start: address
    topology: address
    serialized_bytes: address
    serialized_bytes_size: i64
    serialized_topology: address
    serialized_topology_deleter: address


class TopologyDescriptionDeserializeArgs(Record):
    struct_size: i64
    extension_start: address
    serialized_topology: address
    serialized_topology_size: i64
    topology: address


class TopologyDescriptionAttributesArgs(Record):
    struct_size: i64
    extension_start: address
    topology: address
    attributes: address
    num_attributes: i64


class TopologyDescriptionFingerprintArgs(Record):
    struct_size: i64
    extension_start: address
    topology: address
    fingerprint: i64


class TopologyDescriptionMakeCanonicalShapeForMemorySpaceArgs(Record):
    struct_size: i64
    extension_start: address
    topology: address
    memory_space_kind_id: i32
    dims: address
    num_dims: i64
    element_type: i32
    layout: address
    serialized_shape: address
    serialized_shape_size: i64
    serialized_shape_deleter: address


class TopologyDescriptionGetMemorySpaceKindIdsArgs(Record):
    struct_size: i64
    extension_start: address
    topology: address
    memory_space_kind_ids: address
    num_memory_space_kind_ids: i64
