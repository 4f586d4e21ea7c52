"""Signatures of entries: only what this server made is loaded as native code by its clients.

A signature is the HMAC-SHA256, under the server's key, of the entry as canonical JSON without its signature. The entry
has size and SHA-256 of each file; so whoever has checked the signature can check the files, wherever they come from.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import replace

from shardc.hlo.codec.plain import to_plain
from shardc.hlo.errors import RunError
from shardc.service.jobs import StoreEntry

__all__ = ["canonical", "check_signature", "key_name", "sign"]


def canonical(entry: StoreEntry) -> bytes:
    """What is signed: JSON with sorted keys, no spaces and no characters outside of ASCII."""
    unsigned = to_plain(replace(entry, signature=""))
    return json.dumps(unsigned, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def sign(entry: StoreEntry, key: bytes) -> StoreEntry:
    """``entry`` with its signature under ``key``, in hexadecimal."""
    return replace(entry, signature=hmac.new(key, canonical(entry), hashlib.sha256).hexdigest())


def check_signature(entry: StoreEntry, key: bytes) -> None:
    """Raise `RunError` unless ``entry`` was signed with ``key`` and not changed since."""
    if not hmac.compare_digest(sign(entry, key).signature.encode(), entry.signature.encode()):
        raise RunError(
            "the signature is wrong: another server than the expected one made this result",
            where=f"entry {entry.key}",
            fix="ask the server's operator for its key, and set SHARDC_SERVER_KEY",
        )


def key_name(key: bytes) -> str:
    """A short public name of ``key``, 16 hexadecimal digits, from which it cannot be found."""
    return hmac.new(key, b"name of the key", hashlib.sha256).hexdigest()[:16]
