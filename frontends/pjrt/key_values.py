"""The store of values by name that ``jax.distributed`` keeps for its processes."""

from __future__ import annotations

from typing import Any

from shardc.hlo.errors import RunError

__all__ = ["JaxKeyValues"]


class JaxKeyValues:
    """The store of a ``DistributedRuntimeClient`` of JAX. Both functions raise `RunError` where the store fails."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def put(self, name: str, value: bytes) -> None:
        try:
            self._client.key_value_set_bytes(name, value)
        except RuntimeError as e:
            raise RunError(f"the key-value store of jax.distributed rejected a value: {e}", where=name) from e

    def get(self, name: str, seconds: float) -> bytes | None:
        try:
            return bytes(self._client.blocking_key_value_get_bytes(name, round(1000 * seconds)))
        except RuntimeError as e:
            if str(e).startswith("DEADLINE_EXCEEDED"):
                return None
            raise RunError(f"the key-value store of jax.distributed returned no value: {e}", where=name) from e
