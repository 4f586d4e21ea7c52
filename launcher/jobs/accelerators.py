"""Keeps JAX on the CPU beside shardc: by default, JAX opens every accelerator, in every rank of a job."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import sys
from typing import Any

from shardc.launcher.jobs.mpi_environment import detect_launcher

__all__ = ["keep_jax_on_cpu"]

log = logging.getLogger("shardc")


def keep_jax_on_cpu() -> None:
    """If JAX's platform is not set and a plug-in for an accelerator is installed, choose the CPU, and log it. If JAX
    has already opened its devices, it is too late, and every rank of a job holds memory of the same accelerator: rank 0
    warns. Works before and after ``import jax``, which it does not do itself.
    """
    jax = sys.modules.get("jax")
    chosen = os.environ.get("JAX_PLATFORMS") if jax is None else jax.config.jax_platforms
    if chosen or not _plugins():
        return
    launcher = detect_launcher()
    speaks = launcher is None or launcher.rank <= 0
    if jax is not None and _opened():
        if launcher is not None and speaks and jax.default_backend() != "cpu":
            log.warning(
                "JAX opened the accelerator %s in every rank of this job; set JAX_PLATFORMS=cpu, or import shardc and "
                "call shardc.process_index() before the first use of jax.numpy",
                jax.devices()[0],
            )
        return
    if jax is None:
        os.environ["JAX_PLATFORMS"] = "cpu"
    else:
        jax.config.update("jax_platforms", "cpu")
    if speaks:
        log.warning("JAX stays on the CPU in this process; set JAX_PLATFORMS to let JAX use an accelerator")


def _opened() -> bool:
    """Whether JAX has opened its devices. If that is unknown, nothing is changed."""
    try:
        from jax._src.xla_bridge import backends_are_initialized
    except ImportError:
        return True
    return bool(backends_are_initialized())


def _plugins() -> bool:
    found: Any = importlib.metadata.entry_points(group="jax_plugins")
    others = [e for e in found if e.value.partition(".")[0] != "shardc"]
    return bool(others) or any(importlib.util.find_spec(name) is not None for name in ("jax_plugins", "libtpu"))
