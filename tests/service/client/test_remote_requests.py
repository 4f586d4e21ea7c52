"""What a client asks, what it believes, and what it does when the network or the service fails."""

from __future__ import annotations

import hashlib
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import shardc
from shardc.hlo.config import Config
from shardc.hlo.errors import AnnotationError, EnvironmentProblem, InputError, RunError, UnsupportedError
from shardc.service.client.address import Address
from shardc.service.client.client import Client
from shardc.service.client.connection import Connection, ServiceAway, Unknown
from shardc.service.jobs import Job
from shardc.service.orders import InspectOrder, PartitionOrder, SweepOrder, SweepSet, order_key
from shardc.service.store.signature import sign
from tests.service.client.remote_service import FakeService, serving

NOBODY = "http://127.0.0.1:9"
PROGRAM = b"HloModule m\n\nENTRY %e (x: f32[8]) -> f32[8] {\n  ROOT %x = f32[8] parameter(0)\n}\n"
ORDER = InspectOrder(program=hashlib.sha256(PROGRAM).hexdigest())


@pytest.fixture
def client(service: FakeService) -> Iterator[Client]:
    with shardc.connect(service.url) as connected:
        yield connected


def test_an_order_is_plain_data_or_an_object(client: Client, service: FakeService) -> None:
    plain = {"kind": "inspect", "program": client.upload(PROGRAM)}
    job = client.wait(client.submit(plain))
    assert (job.state, job.key) == ("done", order_key(ORDER))
    assert client.submit(ORDER).key == client.submit(MappingProxyType(plain)).key == job.key
    made = client.carry_out(plain, {})
    assert made.order == ORDER and made.json("program.json")["name"] == "m"
    swept = {"kind": "sweep", "program": ORDER.program, "devices": (4, 8), "sets": (SweepSet(name="a"),)}
    same = SweepOrder(program=ORDER.program, devices=(4, 8), sets=(SweepSet(name="a"),))
    assert client.submit(swept).key == client.submit(same).key == order_key(same)
    assert service.made["InspectOrder"] == 1


@pytest.mark.parametrize(
    ("fields", "where", "what"),
    [
        ({"kind": "other"}, "order.kind", "no order of kind"),
        ({"program": "x"}, "order.program", "SHA-256|hexadecimal"),
        ({"mesh": {"data": "4"}}, "order.mesh['data']", "is not a"),
        ({"mesh": {"data": 0}}, "order.mesh['data']", "at least 1|between"),
        ({"mesh": shardc.Mesh({"data": 4})}, "order", "of class Mesh"),
        ({"annotations": {"x": shardc.P("data")}}, "order", "of class PartitionSpec"),
        ({"memory": float("nan")}, "order", "plain data"),
        ({"unknown": 1}, "order.unknown", "no such field"),
    ],
)
def test_what_is_no_order_is_refused_before_it_is_sent(
    client: Client, service: FakeService, fields: dict[str, Any], where: str, what: str
) -> None:
    with pytest.raises(InputError, match=what) as raised:
        client.submit({"kind": "inspect", "program": ORDER.program, **fields})
    assert raised.value.where == where
    if fields.keys() <= {"mesh", "annotations", "memory"}:
        with pytest.raises(InputError, match=what) as raised:
            client.submit(replace(ORDER, **fields))
        assert raised.value.where == where
    assert not service.asked


@pytest.mark.parametrize("given", [[], "inspect", None, 3])
def test_what_is_no_object_is_no_order(client: Client, given: Any) -> None:
    with pytest.raises(InputError, match="must be an object"):
        client.submit(given)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://user:secret@host:1", "must not hold a password"),
        ("ftp://host", "not the URL"),
        ("127.0.0.1:8377", "not the URL"),
        ("http://", "not the URL"),
        ("http://host:99999", "not a URL"),
        ("http://host/?token=x", "not the URL"),
        ("http://ho st", "characters"),
    ],
)
def test_what_is_no_url(url: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=message) as caught:
        shardc.connect(url)
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("SHARDC_SERVER", url)
    with pytest.raises(InputError, match=message):
        shardc.connect()


def test_no_service_is_named() -> None:
    with pytest.raises(InputError, match="no compile service") as caught:
        shardc.connect()
    assert "SHARDC_SERVER" in str(caught.value)


def test_what_is_this_computer() -> None:
    assert all(
        Address(u).loopback for u in ("http://127.0.0.1:1", "http://localhost", "http://[::1]:2", "http://127.9.1.1")
    )
    assert not any(Address(u).loopback for u in ("http://10.0.0.1", "https://example.com", "http://localhost.example"))


def test_settings_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\nsecond\n")
    (tmp_path / "key").write_text("AB" * 32 + "\n")
    files = {"SHARDC_TOKEN_FILE": str(tmp_path / "token"), "SHARDC_SERVER_KEY": str(tmp_path / "key")}
    config = Config.from_environment({"SHARDC_SERVER": "http://h", **files})
    assert (config.server, config.token, config.server_key) == ("http://h", "first", "ab" * 32)
    assert Config.from_environment({**files, "SHARDC_TOKEN": "own"}).token == "own"
    assert "first" not in repr(config) and "abab" not in repr(config) and "first" not in repr(Address.of(config))
    for name in files:
        with pytest.raises(InputError, match="cannot be read"):
            Config.from_environment({name: str(tmp_path / "none")})
    with pytest.raises(InputError, match="holds no key"):
        Config.from_environment({"SHARDC_SERVER_KEY": str(tmp_path / "token")})


def test_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(token="right") as service:
        with shardc.connect(service.url) as client, pytest.raises(EnvironmentProblem, match="no such token") as caught:
            client.machines()
        assert "SHARDC_TOKEN" in str(caught.value)
        with shardc.connect(service.url, token="right") as client:
            assert client.machines() == [{"name": "m"}]
            assert "right" not in repr(client)
        monkeypatch.setenv("SHARDC_TOKEN", "right")
        with shardc.connect(service.url) as client:
            client.machines()
    with pytest.raises(EnvironmentProblem, match="token has invalid characters"):
        shardc.connect(NOBODY, token="right\r\nHost: other")


def test_an_order_uploads_what_is_missing_and_only_that(service: FakeService, client: Client) -> None:
    with pytest.raises(Unknown):
        client.submit(ORDER)
    for _ in range(2):
        assert client.carry_out(ORDER, {ORDER.program: PROGRAM}).json("program.json")["name"] == "m"
    assert service.asked["POST /v1/programs"] == 1
    assert service.made == {"InspectOrder": 1}


def test_errors_are_those_of_the_stages(client: Client) -> None:
    program = client.program(PROGRAM, "mine.hlo").annotate({"nobody": "data"}, mesh={"data": 2})
    with pytest.raises(AnnotationError, match="nobody"):
        program.partition().report()
    with pytest.raises(UnsupportedError, match="cannot tune"):
        program.compile(tune=1.0)
    with pytest.raises(InputError, match="windowed_einsum"):
        program.partition(windowed_einsum="sometimes")
    with pytest.raises(InputError, match="no machine"):
        program.simulate()
    with pytest.raises(UnsupportedError, match="one machine"):
        program.partition(machine="h100-dgx").simulate("tpu-v5p")
    with pytest.raises(InputError, match="no file 'other"):
        client.fetch(client.program(PROGRAM).annotate(mesh={"a": 2}).partition().result.entry, "other.json")


def test_what_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [None, (503, b'{"error": "RunError", "what": "ending"}'), (429, b"{}"), None]
    monkeypatch.setattr("shardc.service.client.connection._PAUSES", (0.01,) * 5)

    def spoil(method: str, path: str, status: int, content: bytes) -> tuple[int, bytes] | None:
        return failures.pop() if failures and status < 300 else (status, content)

    with serving(spoil=spoil) as service, shardc.connect(service.url) as client:
        assert client.machines() == [{"name": "m"}]
        failures += [(503, b'{"error": "RunError", "what": "ending"}')] * 9
        with pytest.raises(ServiceAway, match="ending"):
            client.machines()


def test_answers_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for status, content in ((200, b"<html>"), (302, b""), (404, b"not here"), (200, b"[1]"), (500, b"{}")):
        with serving(spoil=lambda *_, answer=(status, content): answer) as service:  # noqa: SIM117
            with shardc.connect(service.url) as client, pytest.raises(RunError):
                client.info()


def test_a_service_that_forgets_its_jobs(service: FakeService, client: Client) -> None:
    """It was restarted without its journal: the order is handed in again."""
    service.hold = threading.Event()

    def forget() -> None:
        while not service.jobs:
            time.sleep(0.01)
        assert service.hold is not None
        service.jobs.clear()
        service.hold.set()

    thread = threading.Thread(target=forget)
    service.programs[ORDER.program] = PROGRAM
    thread.start()
    try:
        assert client.carry_out(ORDER, {}).json("program.json")["name"] == "m"
    finally:
        thread.join()


def test_a_result_that_was_thrown_away_is_made_again(service: FakeService, client: Client) -> None:
    result = client.carry_out(ORDER, {ORDER.program: PROGRAM})
    service.files.clear()
    service.entries.clear()
    assert result.json("program.json")["name"] == "m"
    assert service.made == {"InspectOrder": 2}


def test_a_program_that_had_to_make_room(service: FakeService, client: Client) -> None:
    """It was thrown away between its upload and the order."""
    genuine, lost = service.submit, []

    def submit(body: bytes) -> tuple[int, Any]:
        if len(lost) < 2:
            service.programs.clear()
            lost.append(body)
        return genuine(body)

    service.submit = submit  # type: ignore[method-assign]
    assert client.carry_out(ORDER, {ORDER.program: PROGRAM}).json("program.json")["name"] == "m"
    assert service.asked["POST /v1/programs"] == 2


def test_events_that_break_off(service: FakeService) -> None:
    """The job is asked for instead, and heard of all the same."""
    heard: list[str] = []
    hold = service.hold = threading.Event()
    service.breaks = True
    timer = threading.Timer(0.3, hold.set)
    timer.start()
    with shardc.connect(service.url, hear=lambda job: heard.append(job.state)) as client:
        client.carry_out(ORDER, {ORDER.program: PROGRAM})
    timer.join()
    assert heard[-1] == "done" and service.asked["GET /v1/jobs"] >= 2


def test_what_is_not_signed_is_not_believed(service: FakeService, client: Client) -> None:
    entry = client.carry_out(ORDER, {ORDER.program: PROGRAM}).entry
    client.check_entry(entry)
    wrong = [
        replace(entry, signature=""),
        replace(entry, facts={"kind": "other"}),
        replace(entry, artifacts=(replace(entry.artifacts[0], sha256="0" * 64),)),
        replace(entry, key="0" * 64),
        sign(entry, b"another key" * 3),
        replace(entry, signature="é"),
    ]
    for changed in wrong:
        with pytest.raises(RunError, match="signature"):
            client.check_entry(changed)
        service.entries[entry.key] = changed
        with pytest.raises(RunError):
            client.fetch(entry.key, "program.json")
    service.entries[entry.key] = entry
    client.fetch(entry.key, "program.json")
    service.files[entry.key] = {"program.json": service.files[entry.key]["program.json"][:-1] + b" "}
    with pytest.raises(RunError, match="does not match the service's signature"):
        client.fetch(entry.key, "program.json")


def test_another_result_than_the_one_asked_for(service: FakeService, client: Client) -> None:
    """A signed entry under a job of another key."""
    other = client.carry_out(ORDER, {ORDER.program: PROGRAM}).entry
    order = PartitionOrder(program=ORDER.program, mesh={"a": 2})
    genuine = service.told

    def told(job: Job) -> dict[str, Any]:
        return genuine(replace(job, entry=other) if job.entry is not None else job)

    service.told = told  # type: ignore[method-assign]
    with pytest.raises(RunError, match="another result"):
        client.carry_out(order, {})


def test_a_file_comes_with_its_manifest(service: FakeService, client: Client) -> None:
    assert client.fetch_stored("0" * 64, "program.json") is None
    key = client.carry_out(ORDER, {ORDER.program: PROGRAM}).entry.key
    genuine, asked = service.manifest, service.asked["GET /v1/artifacts"]
    entry, data = client.fetch_stored(key, "program.json") or (None, b"")
    assert (
        entry is not None
        and entry.signature == service.entries[key].signature
        and data == service.files[key]["program.json"]
    )
    assert service.asked["GET /v1/artifacts"] == asked + 1
    service.manifest = lambda parts: ""  # type: ignore[method-assign]
    assert client.fetch_stored(key, "program.json") == (entry, data), "the manifest was too long for a header"
    service.manifest = lambda parts: "not base64"  # type: ignore[method-assign]
    with pytest.raises(RunError, match="cannot be read"):
        client.fetch_stored(key, "program.json")
    other = client.carry_out(replace(ORDER, name="other"), {}).entry.key
    service.manifest = lambda parts: genuine([other, parts[1]])  # type: ignore[method-assign]
    with pytest.raises(RunError, match="another result"):
        client.fetch_stored(key, "program.json")
    service.manifest = genuine  # type: ignore[method-assign]
    service.entries[key] = replace(service.entries[key], facts={"kind": "forged"})
    with pytest.raises(RunError, match="signature"):
        client.fetch_stored(key, "program.json")


def test_events_are_heard(service: FakeService) -> None:
    heard: list[Job] = []
    hold = service.hold = threading.Event()

    def hear(job: Job) -> None:
        heard.append(job)
        if job.state == "running":
            hold.set()

    with shardc.connect(service.url, hear=hear) as client:
        client.carry_out(ORDER, {ORDER.program: PROGRAM})
    assert [j.state for j in heard][-2:] == ["running", "done"] and heard[-2].progress == {"stage": "held"}
    assert service.asked["GET /v1/jobs"] == 1  # the events alone


def test_an_interrupt_cancels_the_job(service: FakeService, repository: Path, mlp: str) -> None:
    service.hold = threading.Event()
    command = [sys.executable, "-m", "shardc", "partition", mlp, "--server", service.url]
    with subprocess.Popen(command, cwd=repository, stderr=subprocess.PIPE, text=True, env=os.environ) as process:
        end = time.monotonic() + 60
        while not any(j.state == "running" for j in service.jobs.values()) and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert service.cancelled == ["job0"]


def test_cancelled_by_somebody_else(service: FakeService, client: Client) -> None:
    service.hold = threading.Event()
    thread = threading.Timer(0.2, lambda: client_two.cancel("job0"))
    with shardc.connect(service.url) as client_two:
        thread.start()
        with pytest.raises(RunError, match="cancelled"):
            client.carry_out(ORDER, {ORDER.program: PROGRAM})
        thread.join()


def test_certificates_are_checked(tmp_path: Path) -> None:
    """A service behind TLS whose certificate nobody vouches for is away."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, *name]
    made = subprocess.run(command, capture_output=True, check=False)
    if made.returncode:
        pytest.skip("no openssl to make a certificate with")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serving(tls=context) as service:
        assert service.url.startswith("https://")
        with (
            Connection(Address(service.url), retry=False) as there,
            pytest.raises(ServiceAway, match="CERTIFICATE"),
        ):
            there.json("GET", "/v1/info")
        env = {**os.environ, "SSL_CERT_FILE": str(certificate)}
        code = f"import shardc; print(shardc.connect({service.url!r}).info())"
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
        assert "version" in done.stdout, done.stderr


def test_without_urllib3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "urllib3", None)
    with shardc.connect(NOBODY) as client, pytest.raises(EnvironmentProblem, match="urllib3") as caught:
        client.info()
    assert "shardc[client]" in str(caught.value)
