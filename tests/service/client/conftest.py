"""What tests of the client share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardc.service.client.compile_remotely import _service_state
from tests.service.client.remote_service import FakeService, serving

ROOT = Path(__file__).parents[3]


@pytest.fixture
def service() -> Iterator[FakeService]:
    with serving() as running:
        yield running


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, no service in the environment, and nothing known of one that was at the same port before."""
    _service_state.cache_clear()
    for name in ("SHARDC_SERVER", "SHARDC_TOKEN", "SHARDC_TOKEN_FILE", "SHARDC_SERVER_KEY"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "cache"
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def mlp() -> str:
    return str(ROOT / "examples" / "hlo_annotated" / "mlp.hlo")
