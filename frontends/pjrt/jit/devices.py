"""Which devices of shardc a mesh gets in this process.

Where JAX itself has the platform ``shardc``, and enough of its devices, these are taken. Otherwise the plug-in is asked
for a client besides those of JAX: it has as many devices as meshes need, whatever platforms JAX was told to use.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
from jaxlib import xla_client

from shardc.frontends.pjrt.plugin import PLATFORM, api_capsule

__all__ = ["by_default", "devices_for", "is_ours"]

#: Meshes of up to so many devices share them.
_SHARED = 8


def is_ours(device: Any) -> bool:
    """Whether the device is one of shardc's."""
    return str(device.device_kind).startswith(PLATFORM)


@cache
def by_default() -> bool:
    """Whether JAX itself runs on shardc here, where nobody names devices."""
    return is_ours(jax.local_devices()[0])


def devices_for(count: int) -> Sequence[Any]:
    """At least ``count`` devices of one client, always the same ones."""
    devices = _devices_of_jax()
    return devices if len(devices) >= count else _client(max(_SHARED, 1 << (count - 1).bit_length())).devices()


@cache
def _devices_of_jax() -> Sequence[Any]:
    """The devices of the platform as JAX has it; none where it was told to use others."""
    try:
        return tuple(jax.devices(PLATFORM))
    except RuntimeError:
        return ()


@cache
def _client(num_devices: int) -> Any:
    """A client that JAX's list of platforms does not have."""
    if not xla_client.pjrt_plugin_loaded(PLATFORM):
        xla_client.load_pjrt_plugin_with_c_api(PLATFORM, api_capsule())
    if not xla_client.pjrt_plugin_initialized(PLATFORM):
        xla_client.initialize_pjrt_plugin(PLATFORM)
    return xla_client.make_c_api_client(PLATFORM, {"num_devices": num_devices})
