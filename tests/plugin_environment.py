"""The environment of a process that runs an unmodified JAX script on the plug-in, or on JAX's own CPU backend."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: What this project's own tests set, or a user's shell, and would change what is judged.
LEFT_OUT = ("JAX_DISABLE_MOST_OPTIMIZATIONS", "JAX_NUM_CPU_DEVICES", "SHARDC_NUM_DEVICES", "XLA_FLAGS", "JAX_PLATFORMS")


def plugin_environment(platform: str, folder: Path, devices: int | None = None, **more: str) -> dict[str, str]:
    """``platform`` is shardc or cpu; ``folder``, which lives as long as the process, gets the plug-in's metadata where
    the tree's installed one is older. ``devices`` None leaves their number to the script."""
    write_entry_point(folder)
    kept = {k: v for k, v in os.environ.items() if k not in LEFT_OUT}
    paths = [str(ROOT), str(folder), os.environ.get("PYTHONPATH", "")]
    number = {"JAX_NUM_CPU_DEVICES": str(devices)} if devices else {}
    return {**kept, **number, "JAX_PLATFORMS": platform, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **more}


def write_entry_point(folder: Path) -> None:
    if any(e.name == "shardc" for e in entry_points(group="jax_plugins")):
        return
    info = folder / "shardc_here-0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shardc-here\nVersion: 0\n", encoding="utf-8")
    text = "[jax_plugins]\nshardc = shardc.stages.plugin\n"
    (info / "entry_points.txt").write_text(text, encoding="utf-8")
