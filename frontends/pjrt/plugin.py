"""What JAX finds: `initialize` registers the platform ``shardc`` where JAX is asked for it: ``JAX_PLATFORMS=shardc``.

JAX calls `initialize` in every program of an environment that has shardc in it, and makes a client of every platform
that is registered. So who did not ask for this one pays nothing: neither is it registered, nor anything imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

__all__ = ["PLATFORM", "api_capsule", "initialize"]

PLATFORM = "shardc"


def initialize() -> bool:
    """Register the plug-in with JAX, if its setting ``jax_platforms`` names it. Returns whether there will be a client.

    JAX only logs what is raised here, and then says that it does not know the platform. So what is wrong with the
    environment is raised where it makes the client.
    """
    from jax._src import config, xla_bridge

    if PLATFORM not in (config.jax_platforms.value or "").split(","):
        return False
    from shardc.hlo.errors import ShardcError

    problem = None
    try:
        xla_bridge.register_plugin(PLATFORM, c_api=api_capsule(), options=client_options)
    except ShardcError as e:
        problem = e
        xla_bridge.register_backend_factory(PLATFORM, partial(_refuse, e), fail_quietly=False)
    else:
        xla_bridge._backend_factories[PLATFORM].factory = partial(_make_client, xla_bridge)
    registered = xla_bridge._backend_factories[PLATFORM]
    if hasattr(registered, "experimental"):
        registered.experimental = False
    return problem is None


def _refuse(problem: Exception) -> Any:
    raise problem


def _make_client(xla_bridge: Any) -> Any:
    """The client; where JAX opens no other backend for processors, this is what it calls ``cpu``, which its callbacks
    put their arguments on.

    It is made as JAX makes those of plug-ins, but without the client of ``jax.distributed``, as that for processors:
    jaxlib would watch the job in a thread that goes on when JAX has shut the job down, and may end the process by a
    segmentation fault.
    """
    from jax._src import distributed
    from jax._src.lib import xla_client

    options = {**client_options(), **xla_bridge._options_from_jax_configs(PLATFORM)}
    job = distributed.global_state
    if job.client is not None:
        options = {"node_id": job.process_id, "num_nodes": job.num_processes, **options}
    client = xla_client.make_c_api_client(PLATFORM, options, None)
    xla_bridge._backends.setdefault("cpu", client)
    _keep(client)
    return client


def _keep(value: Any) -> None:
    """Never end ``value``, the client or what it calls.

    ``np.asarray`` of a JAX array shares its memory, and gives it back to the client. At the end of the process Python
    may end the client before such an array. In a child after a fork jaxlib would wait for threads that are not there.
    """
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def client_options() -> Mapping[str, Any]:
    """What the client is created with: a process's number of devices, by ``SHARDC_NUM_DEVICES``, or as JAX's users give
    it for processors."""
    from shardc.hlo.variables import read_variable

    return {"num_devices": read_variable("SHARDC_NUM_DEVICES", os.environ) or _cpu_devices_of_jax() or 1}


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

    from shardc.hlo.passes import pause_collector

    with pause_collector():  # imports, beside JAX's many objects
        from shardc.frontends.pjrt.functions import plugin_api

        table = plugin_api()
    _keep(table)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(table.address, b"pjrt_c_api", None)
