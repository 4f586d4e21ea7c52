"""PJRT's table of functions for this process: which function of Python does what native code does not."""

from __future__ import annotations

from functools import cache, partial

from shardc.frontends.pjrt.abi.base import PluginAttributesArgs, PluginInitializeArgs
from shardc.frontends.pjrt.abi.devices import DeviceGetAttributesArgs
from shardc.frontends.pjrt.analyses import CompiledAnalyses
from shardc.frontends.pjrt.api import Api, build_api
from shardc.frontends.pjrt.client import Clients
from shardc.frontends.pjrt.compiled_handles import CompiledHandles
from shardc.frontends.pjrt.extensions import build_extensions
from shardc.frontends.pjrt.native.library import library
from shardc.frontends.pjrt.step_worker import step_worker
from shardc.frontends.pjrt.topology import Topologies
from shardc.hlo.config import Config

__all__ = ["plugin_api"]


@cache
def plugin_api() -> Api:
    """The table, made once in a process: its worker and its native code are the process's, too."""
    native = library(Config.from_environment().cache_dir)
    deleter = native.address("shardc_pjrt_delete_nothing")
    topologies = Topologies()
    handles = CompiledHandles(deleter)
    worker = step_worker(native)
    clients = Clients(topologies, handles, worker)
    analyses = CompiledAnalyses(handles, native)
    return build_api(
        native,
        {
            "Plugin_Initialize": _initialize,
            "Plugin_Attributes": _attributes,
            "Client_Create": clients.create,
            "Client_Destroy": clients.destroy,
            "Client_Compile": clients.compile,
            "Executable_DeserializeAndLoad": clients.deserialize,
            "TopologyDescription_Fingerprint": topologies.fingerprint,
            "Device_GetAttributes": partial(_device_attributes, deleter),
            "TopologyDescription_Create": topologies.create,
            "TopologyDescription_PlatformName": topologies.platform_name,
            "TopologyDescription_PlatformVersion": topologies.platform_version,
            "TopologyDescription_GetDeviceDescriptions": topologies.device_descriptions,
            "TopologyDescription_Attributes": topologies.attributes,
            "LoadedExecutable_GetExecutable": handles.get_executable,
            "LoadedExecutable_AddressableDevices": handles.addressable_devices,
            "LoadedExecutable_AddressableDeviceLogicalIds": handles.logical_ids,
            "LoadedExecutable_GetDeviceAssignment": handles.device_assignment,
            "LoadedExecutable_Fingerprint": handles.loaded_fingerprint,
            "Executable_Fingerprint": handles.fingerprint,
            "Executable_Name": handles.name,
            "Executable_SizeOfGeneratedCodeInBytes": handles.code_size,
            "Executable_OutputElementTypes": handles.output_element_types,
            "Executable_OutputDimensions": handles.output_dimensions,
            "Executable_OutputMemoryKinds": handles.output_memory_kinds,
            "Executable_ParameterMemoryKinds": handles.parameter_memory_kinds,
            **analyses.functions(),
        },
        partial(build_extensions, native, analyses),
    )


def _initialize(args: PluginInitializeArgs) -> None:
    """All is there already."""


def _attributes(args: PluginAttributesArgs) -> None:
    """There are none."""
    args.attributes, args.num_attributes = 0, 0


def _device_attributes(deleter: int, args: DeviceGetAttributesArgs) -> None:
    """There are none."""
    args.attributes, args.num_attributes = 0, 0
    args.device_attributes, args.attributes_deleter = 0, deleter
