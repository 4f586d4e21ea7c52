"""The default folders of a server."""

from __future__ import annotations

import hashlib
from pathlib import Path

import platformdirs

__all__ = ["default_state", "default_store"]


def default_store() -> Path:
    """The user's own store on this machine."""
    return Path(platformdirs.user_data_dir("shardc")) / "service"


def default_state(store: str) -> Path:
    """The state of the server of ``store``: within the store's folder or, for object storage, a folder of this
    machine's user that is named after it."""
    if "://" not in store:
        return Path(store) / "state"
    scheme, _, place = store.partition("://")
    if scheme in ("file", "local"):
        return Path(place) / "state"
    name = hashlib.sha256(store.encode()).hexdigest()[:16]
    return Path(platformdirs.user_state_dir("shardc")) / "service" / name
