"""What JAX finds: `initialize` registers the platform ``shardc``; all else comes when its devices are asked for.

JAX chooses it by ``JAX_PLATFORMS=shardc`` (or ``jax.devices("shardc")``); otherwise its own backends stay the default.
JAX calls `initialize` in every program of an environment that has shardc in it, so nothing of ours is imported before
the client is made: JAX is given an empty table of functions, which is filled then.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from shardc.frontends.pjrt.abi.functions import FUNCTIONS, MINOR

__all__ = ["initialize"]

#: Below JAX's own backend for processors, which has 0.
_PRIORITY = -1
#: Words in front of the table's functions: size, extensions, and the version in three words.
_HEAD = 5
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


def initialize() -> None:
    """Register the plug-in with JAX."""
    from jax._src import xla_bridge
    from jaxlib import xla_client

    capsule = _FunctionTable.of_process().capsule()
    topology = partial(_make_topology, xla_client, capsule)
    options: dict[str, Any] = {"priority": _PRIORITY, "c_api": capsule, "options": client_options}
    xla_bridge.register_plugin("shardc", **options)
    registered = xla_bridge._backend_factories["shardc"]
    registered.factory = partial(_make_client, xla_bridge, registered.factory)
    if hasattr(registered, "experimental"):
        registered.experimental = False
    if hasattr(xla_bridge, "_topology_factories"):
        xla_bridge._topology_factories["shardc"] = topology


def _make_client(xla_bridge: Any, make: Callable[[], Any]) -> Any:
    """The client; where JAX opens no other backend for processors, this is what it calls ``cpu``, which its callbacks
    put their arguments on."""
    client = make()
    xla_bridge._backends.setdefault("cpu", client)
    return client


def client_options() -> Mapping[str, Any]:
    """What the client is created with: a process's number of devices, by ``SHARDC_NUM_DEVICES``, or as JAX's users give
    it for processors."""
    _FunctionTable.of_process().fill()
    from shardc.hlo.variables import read_variable

    return {"num_devices": read_variable("SHARDC_NUM_DEVICES", os.environ) or _cpu_devices_of_jax() or 1}


def _make_topology(xla_client: Any, capsule: Any, topology_name: str = "", **options: Any) -> Any:
    _FunctionTable.of_process().fill()
    return xla_client.make_c_api_device_topology(capsule, topology_name, **options)


def _cpu_devices_of_jax() -> int:
    from jax._src import xla_bridge

    setting = getattr(xla_bridge, "num_cpu_devices", None)
    if setting is not None and setting.value > 0:
        return int(setting.value)
    flag = re.search(r"--xla_force_host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", ""))
    return int(flag.group(1)) if flag else 0


class _FunctionTable:
    """The interface's table in its place. Before it is filled it has nothing but what JAX asks of a plug-in first."""

    def __init__(self) -> None:
        words = [0] * (_HEAD + len(FUNCTIONS))
        words[0], words[2], words[4] = 8 * len(words), 24, MINOR << 32
        self._nothing = _FUNCTION(lambda args: 0)
        words[_HEAD + FUNCTIONS.index("Plugin_Initialize")] = ctypes.cast(self._nothing, ctypes.c_void_p).value or 0
        self._words = (ctypes.c_uint64 * len(words))(*words)

    @staticmethod
    @cache
    def of_process() -> _FunctionTable:
        return _FunctionTable()

    def fill(self) -> None:
        """Let it have all functions."""
        from shardc.frontends.pjrt.functions import plugin_api

        ctypes.memmove(self._words, plugin_api().address, ctypes.sizeof(self._words))

    def capsule(self) -> Any:
        """The table as jaxlib takes it."""
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self._words), b"pjrt_c_api", None)
