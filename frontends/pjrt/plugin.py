"""What JAX finds: `initialize` registers the platform ``shardc``; all else comes when its devices are asked for.

JAX chooses it by ``JAX_PLATFORMS=shardc`` (or ``jax.devices("shardc")``); otherwise its own backends stay the default.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

__all__ = ["initialize"]

#: Below JAX's own backend for processors, which has 0.
_PRIORITY = -1


def initialize() -> None:
    """Register the plug-in with JAX."""
    from jax._src import xla_bridge

    xla_bridge.register_plugin("shardc", priority=_PRIORITY, c_api=api_capsule(), options=client_options)
    known = getattr(xla_bridge, "_nonexperimental_plugins", None)
    if known is not None:
        known.add("shardc")
        registration = xla_bridge._backend_factories["shardc"]
        registration.experimental = False
        registration.factory = partial(_make_client, xla_bridge, registration.factory)


def _make_client(xla_bridge: Any, make: Callable[[], Any]) -> Any:
    """The client; where JAX opens no other backend for processors, this is what it calls ``cpu``, which its callbacks
    put their arguments on."""
    client = make()
    xla_bridge._backends.setdefault("cpu", client)
    return client


def client_options() -> Mapping[str, Any]:
    """What the client is created with: a process's number of devices, by ``SHARDC_NUM_DEVICES``, or as JAX's users give
    it for processors."""
    from shardc.hlo.variables import read_variable

    given = read_variable("SHARDC_NUM_DEVICES", os.environ)
    return {"num_devices": given or _cpu_devices_of_jax() or 1}


def _cpu_devices_of_jax() -> int:
    from jax._src import xla_bridge

    setting = getattr(xla_bridge, "num_cpu_devices", None)
    if setting is not None and setting.value > 0:
        return int(setting.value)
    flag = re.search(r"--xla_force_host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", ""))
    return int(flag.group(1)) if flag else 0


def api_capsule() -> Any:
    """The interface's table of functions, as jaxlib takes it."""
    import ctypes

    from shardc.frontends.pjrt.functions import plugin_api

    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(plugin_api().address, b"pjrt_c_api", None)
