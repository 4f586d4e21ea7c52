"""Signatures: whatever is changed is noticed; keys are made once and are nobody else's."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_support import KEY, name

from shardc.hlo.errors import EnvironmentProblem, RunError
from shardc.service.jobs import Artifact, StoreEntry
from shardc.service.store.media_types import media_type
from shardc.service.store.server_key import server_key
from shardc.service.store.signature import canonical, check_signature, key_name, sign

ENTRY = StoreEntry(
    name("k"),
    (Artifact("executable.shardc", 5, name(1), "application/octet-stream"), Artifact("report.json", 0, name(2), "x")),
    {"kind": "compile", "seconds": {"lower": 0.125, "emit": 1e-9}, "name": "Schönes 'Programm'\n", "sizes": [1, 2]},
)


def test_what_is_signed_is_said_in_the_documentation() -> None:
    text = json.dumps(
        {
            "key": ENTRY.key,
            "artifacts": [
                {"name": a.name, "bytes": a.bytes, "sha256": a.sha256, "media_type": a.media_type}
                for a in ENTRY.artifacts
            ],
            "facts": ENTRY.facts,
            "signature": "",
        },
        sort_keys=True,
        separators=(",", ":"),
    )
    assert canonical(ENTRY) == text.encode()
    assert sign(ENTRY, KEY).signature == hmac.new(KEY, text.encode(), hashlib.sha256).hexdigest()


def test_a_signed_entry_that_travelled_is_accepted() -> None:
    signed = sign(ENTRY, KEY)
    travelled = replace(signed, facts=json.loads(json.dumps(signed.facts)))
    check_signature(travelled, KEY)
    assert sign(signed, KEY) == signed


@pytest.mark.parametrize(
    "changed",
    [
        replace(ENTRY, key=name("other")),
        replace(ENTRY, artifacts=ENTRY.artifacts[::-1]),
        replace(ENTRY, artifacts=ENTRY.artifacts[:1]),
        replace(ENTRY, artifacts=(replace(ENTRY.artifacts[0], bytes=6), ENTRY.artifacts[1])),
        replace(ENTRY, artifacts=(replace(ENTRY.artifacts[0], sha256=name(3)), ENTRY.artifacts[1])),
        replace(ENTRY, facts={**ENTRY.facts, "kind": "report"}),
        replace(ENTRY, facts={}),
    ],
)
def test_every_change_is_noticed(changed: StoreEntry) -> None:
    signature = sign(ENTRY, KEY).signature
    with pytest.raises(RunError, match="signature is wrong"):
        check_signature(replace(changed, signature=signature), KEY)


@pytest.mark.parametrize("signature", ["", "0" * 64, "é", sign(ENTRY, bytes(32)).signature])
def test_other_signatures_are_refused(signature: str) -> None:
    with pytest.raises(RunError, match="SHARDC_SERVER_KEY"):
        check_signature(replace(ENTRY, signature=signature), KEY)


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_a_signature_is_of_one_key(one: bytes, other: bytes) -> None:
    signed = sign(ENTRY, one)
    if one == other:
        check_signature(signed, other)
    else:
        assert key_name(one) != key_name(other)
        with pytest.raises(RunError):
            check_signature(signed, other)


def test_the_key_is_made_once_by_whoever_is_first(tmp_path: Path) -> None:
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(server_key(tmp_path / "state"))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 16
    assert len(set(found)) == 1
    assert len(found[0]) == 32
    assert [p.name for p in (tmp_path / "state").iterdir()] == ["key"]
    assert (tmp_path / "state" / "key").stat().st_mode & 0o777 == 0o600
    assert server_key(tmp_path / "other") != found[0]


def test_keys_that_are_no_secret_are_refused(tmp_path: Path) -> None:
    server_key(tmp_path)
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(EnvironmentProblem, match="other users can read"):
        server_key(tmp_path)
    (tmp_path / "key").chmod(0o600)
    (tmp_path / "key").write_text("secret")
    with pytest.raises(EnvironmentProblem, match="64 hexadecimal"):
        server_key(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="--state"):
        server_key(tmp_path / "file" / "state")


def test_types_by_name() -> None:
    assert media_type("report.json") == "application/json"
    assert media_type("partitioned.hlo").startswith("text/plain")
    assert media_type("report.html").startswith("text/html")
    assert media_type("executable.shardc") == media_type("program") == "application/octet-stream"
