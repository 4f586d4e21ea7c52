"""With SHARDC_SERVER set, compiling asks: the cache, then the service, and goes on here with one warning."""

from __future__ import annotations

import logging
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh, P, ShapeDtype
from shardc.compiler.cache.serialize import to_bytes
from tests.service.client.remote_service import FakeService, serving

MESH = Mesh({"data": 2, "model": 2})


def step(w: Any, x: Any) -> Any:
    return {"h": np.tanh(x @ w), "sum": np.sum(x)}


def traced(columns: int = 8) -> shardc.Program:
    specs = ShapeDtype((16, columns), "float32"), ShapeDtype((8, 16), "float32")
    return shardc.trace(step, *specs, mesh=MESH, in_shardings=(P(None, "model"), P("data")))


def content(compiled: shardc.Compiled) -> bytes:
    return to_bytes(replace(compiled.executable, seconds={}))


@pytest.fixture
def asking(service: FakeService, monkeypatch: pytest.MonkeyPatch) -> FakeService:
    monkeypatch.setenv("SHARDC_SERVER", service.url)
    return service


def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str = "other") -> None:
    """Another computer, so to speak: nothing in the cache."""
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / name))


def test_the_same_executable_as_here(
    service: FakeService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mlp: str
) -> None:
    here = [traced().compile(), traced().partition().compile(), shardc.load(mlp).compile()]
    monkeypatch.setenv("SHARDC_SERVER", service.url)
    elsewhere(monkeypatch, tmp_path)
    there = [traced().compile(), traced().partition().compile(), shardc.load(mlp).compile()]
    assert [content(c) for c in here] == [content(c) for c in there]
    assert service.made == {"CompileOrder": 2}  # the first two are one order
    w, x = np.ones((16, 8), np.float32), np.arange(128, dtype=np.float32).reshape(8, 16)
    results = there[0](w, x)
    np.testing.assert_allclose(np.asarray(results["h"]), np.tanh(x @ w), rtol=1e-6)
    assert list(results) == ["h", "sum"]
    assert there[0].partitioned().num_devices == 4


def test_jitted_functions_are_compiled_there(
    asking: FakeService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jax = pytest.importorskip("jax")

    def loss(w: Any, x: Any) -> Any:
        return jax.numpy.sum(jax.numpy.tanh(x @ w) ** 2)

    w, x = np.ones((16, 8), np.float32), np.ones((8, 16), np.float32)

    def made() -> Any:
        return shardc.jit(loss, mesh=MESH, in_shardings=(P(None, "model"), P("data")))

    there = made()
    value = float(there(w, x))
    assert asking.made == {"CompileOrder": 1}
    assert float(made()(w, x)) == value
    assert asking.asked["POST /v1/programs"] == 1 and asking.asked["POST /v1/jobs"] == 2  # then the cache knew it
    monkeypatch.delenv("SHARDC_SERVER")
    elsewhere(monkeypatch, tmp_path)
    here = made()
    assert float(here(w, x)) == value
    assert content(here.compiled(w, x)) == content(there.compiled(w, x))


def test_the_cache_comes_first(asking: FakeService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mlp: str) -> None:
    for _ in range(2):
        shardc.load(mlp).compile()
        traced().partition().compile()
    assert asking.made == {"CompileOrder": 2} and asking.asked["POST /v1/jobs"] == 4  # before and after the upload
    elsewhere(monkeypatch, tmp_path)
    shardc.load(mlp).compile()
    assert asking.made == {"CompileOrder": 2}  # the service knew it


def test_away_is_one_warning(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    here = traced().compile()
    elsewhere(monkeypatch, tmp_path)
    monkeypatch.setenv("SHARDC_SERVER", "http://127.0.0.1:9")
    with caplog.at_level(logging.WARNING, "shardc"):
        assert content(traced().compile()) == content(here)
        traced(16).compile()
        traced(16).partition().compile()
    (warning,) = caplog.messages
    assert "127.0.0.1:9" in warning and "does not answer" in warning and "compiled here" in warning


def _damaged(method: str, path: str, status: int, content: bytes) -> tuple[int, bytes]:
    return status, content[:-1] + b"?" if path.endswith("executable.shardc") and status == 200 else content


def _broken(method: str, path: str, status: int, content: bytes) -> tuple[int, bytes]:
    return (500, b"no") if "jobs" in path else (status, content)


def _no_service(method: str, path: str, status: int, content: bytes) -> tuple[int, bytes]:
    return 200, b"<html>hello</html>"


def _breaks_off(method: str, path: str, status: int, content: bytes) -> tuple[int, bytes] | None:
    return None if "artifacts" in path else (status, content)


def _too_long(method: str, path: str, status: int, content: bytes) -> tuple[int, bytes]:
    return status, content + b"?" if path.endswith("executable.shardc") and status == 200 else content


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"token": "secret"}, "no such token"),
        ({"version": "another"}, "another version"),
        ({"spoil": _damaged}, "damaged"),
        ({"spoil": _too_long}, "exceeds"),
        ({"spoil": _broken}, "500"),
        ({"spoil": _no_service}, "is this a compile service"),
        ({"spoil": _breaks_off}, "does not answer"),
    ],
    ids=["token", "version", "damaged", "long", "broken", "no service", "breaks off"],
)
def test_what_cannot_be_used_is_compiled_here(
    options: dict[str, Any],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    here = content(traced().compile())
    elsewhere(monkeypatch, tmp_path)
    monkeypatch.setattr("shardc.service.client.connection._PAUSES", (0.01,))
    with serving(**options) as service, caplog.at_level(logging.WARNING, "shardc"):
        monkeypatch.setenv("SHARDC_SERVER", service.url)
        assert content(traced().compile()) == here
    (warning,) = caplog.messages
    assert reason in warning and "compiled here" in warning


def test_another_key_is_refused(
    asking: FakeService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SHARDC_SERVER_KEY", "ab" * 32)
    with caplog.at_level(logging.WARNING, "shardc"):
        traced().compile()
    assert "signature" in caplog.messages[0]
    assert asking.asked["GET /v1/artifacts"] == 1 and asking.asked["GET /v1/key"] == 0  # asked before it was made


def test_what_is_not_for_a_service(asking: FakeService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    call = shardc.CustomCall(evaluate=lambda inputs, call: inputs)
    traced().with_custom_calls({"mine": call}).compile()
    traced().compile(tune=0.01)
    monkeypatch.setenv("SHARDC_CHECK", "1")
    traced().compile()
    assert not asking.asked


def test_errors_of_the_program_are_those_of_here(asking: FakeService, tmp_path: Path) -> None:
    with pytest.raises(shardc.ShardcError, match="unknown compile target"):
        traced().compile("pdp11")
    text = 'HloModule m\n\nENTRY e {\n  ROOT %r = f32[2] custom-call(), custom_call_target="unheard_of"\n}\n'
    (tmp_path / "m.hlo").write_text(text)
    with pytest.raises(shardc.ShardcError, match="unheard_of"):
        shardc.load(tmp_path / "m.hlo").compile()


def test_a_url_that_is_none_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_SERVER", "http://me:secret@host")
    with pytest.raises(shardc.ShardcError, match="must not hold a password"):
        traced().compile()


def test_an_interrupt_reaches_the_caller_and_the_job(asking: FakeService) -> None:
    """Ctrl-C while the service compiles is one here, too: nothing is compiled in its place."""
    asking.hold = threading.Event()

    def interrupt() -> None:
        while not any(j.state == "running" for j in asking.jobs.values()):
            time.sleep(0.01)
        time.sleep(0.1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            traced().compile()
    finally:
        thread.join()
    assert asking.cancelled == ["job0"] and not asking.made


def test_what_is_away_is_not_asked_again(service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardc.service.client.connection._FIRST", ())
    monkeypatch.setenv("SHARDC_SERVER", service.url)
    service.spoil = lambda method, path, status, content: None
    traced().compile()
    asked = sum(service.asked.values())
    service.spoil = lambda method, path, status, content: (status, content)
    traced(16).compile()
    assert sum(service.asked.values()) == asked == 1


def test_what_is_read_back_otherwise_is_compiled_here(
    asking: FakeService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Were the text to lose something, another program would be compiled than the one that was meant."""
    from shardc.hlo.text import carried

    genuine = carried.print_carried
    monkeypatch.setattr(carried, "print_carried", lambda module: genuine(module.with_(donors=(0,))))
    with caplog.at_level(logging.WARNING, "shardc"):
        traced().compile()
    assert "cannot be written as HLO text without losing information" in caplog.messages[0] and not asking.asked


def test_profiles_come_from_there(asking: FakeService) -> None:
    made = traced().partition().compile(profile=True)
    assert made.executable.profile is not None and asking.made == {"CompileOrder": 1}


def test_a_function_in_a_file_keeps_its_pytrees(service: FakeService, tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    pytest.importorskip("flatbuffers")

    def step(state: Any, x: Any) -> Any:
        return {"w": state["w"] + x.sum(), "y": state["w"] * x}

    x = np.arange(4, dtype=np.float32)
    data = jax.export.export(jax.jit(step))({"w": x}, x).serialize()
    (tmp_path / "step.bin").write_bytes(data)
    with shardc.connect(service.url) as client:
        compiled = client.compile(tmp_path / "step.bin")
        results = compiled({"w": x}, x)
        assert client.program(tmp_path / "step.bin").arg_names == shardc.load(tmp_path / "step.bin").arg_names
    np.testing.assert_allclose(np.asarray(results["y"]), x * x)
    np.testing.assert_allclose(np.asarray(results["w"]), x + x.sum())
    assert content(compiled) == content(shardc.load(tmp_path / "step.bin").compile())
    assert compiled.partitioned().num_devices == 1 and service.made["CompileOrder"] == 1
