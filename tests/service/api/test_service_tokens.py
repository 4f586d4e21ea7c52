"""Every route of the interface's own description, with no token, wrong ones, and pieces of the right one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.service.service_harness import TOKEN, Service, eventually

WRONG = {
    "none": {},
    "empty": {"Authorization": ""},
    "only the scheme": {"Authorization": "Bearer"},
    "wrong": {"Authorization": f"Bearer {'x' * len(TOKEN)}"},
    "without its end": {"Authorization": f"Bearer {TOKEN[:-1]}"},
    "without its beginning": {"Authorization": f"Bearer {TOKEN[1:]}"},
    "with more behind it": {"Authorization": f"Bearer {TOKEN}x"},
    "twice": {"Authorization": f"Bearer {TOKEN} {TOKEN}"},
    "in capitals": {"Authorization": f"Bearer {TOKEN.upper()}"},
    "its owner's name": {"Authorization": "Bearer tests"},
    "another scheme": {"Authorization": f"Basic {TOKEN}"},
    "another header": {"X-Api-Key": TOKEN, "Cookie": f"token={TOKEN}"},
    "letters that are not ASCII": {"Authorization": b"Bearer \xff\xfe"},
}
#: What anybody may see: that it is alive, and the pages, which ask for a token themselves.
OPEN = ("/", "/docs", "/healthz")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("tokens")) as service:
        yield service


def routes(service: Service) -> list[tuple[str, str]]:
    """Method and path of everything that is described and needs a token, with something in place of parameters."""
    with service.caller() as caller:
        answer = caller.http.get("/v1/openapi.json")
        assert answer.status_code == 200, answer.text
        paths = answer.json()["paths"]
    found = [
        (method.upper(), path.format_map(Zeros()))
        for path, item in paths.items()
        for method in item
        if method in ("get", "head", "post", "put", "patch", "delete", "options")
    ]
    return [(method, path) for method, path in found if path not in OPEN and not path.startswith("/explorer/")]


class Zeros(dict[str, str]):
    """Any parameter of a path."""

    def __missing__(self, name: str) -> str:
        return "report.json" if name == "name" else "0" * 64


def test_every_route_refuses_all_but_the_right_token(service: Service) -> None:
    asked = [*routes(service), ("GET", "/metrics"), ("GET", "/v1/openapi.json"), ("GET", "/v1/nothing")]
    assert len(asked) >= 14, asked
    with httpx.Client(base_url=service.url, timeout=60, trust_env=False) as http:
        for method, path in asked:
            body = b"{}" if method in ("POST", "PUT", "PATCH") else None
            for why, headers in WRONG.items():
                answer = http.request(method, path, headers=headers, content=body)
                assert answer.status_code == 401, f"{method} {path} with {why}: {answer.status_code}"
                assert answer.headers["www-authenticate"].startswith("Bearer")
                if method != "HEAD":
                    assert answer.headers["content-type"].startswith("application/problem+json")
                    assert TOKEN not in answer.text
            answer = http.request(method, path, headers={"Authorization": f"Bearer {TOKEN}"}, content=body)
            assert answer.status_code != 401, f"{method} {path} with the token"


def test_a_token_in_the_address_opens_nothing(service: Service) -> None:
    with httpx.Client(base_url=service.url, timeout=60, trust_env=False) as http:
        for query in (f"token={TOKEN}", f"access_token={TOKEN}", f"authorization=Bearer%20{TOKEN}"):
            assert http.get(f"/v1/jobs?{query}").status_code == 401


def test_the_door_and_the_pulse_are_open(service: Service) -> None:
    with httpx.Client(base_url=service.url, timeout=60, trust_env=False) as http:
        assert http.get("/healthz").json() == {"status": "ok"}
        assert http.get("/").status_code == 200


def test_no_token_lies_on_the_disk(service: Service) -> None:
    """It came in clear in its file; the server has put its hash there."""
    files = [p for p in service.folder.rglob("*") if p.is_file()]
    assert service.folder / "tokens" in files
    for path in files:
        assert TOKEN.encode() not in path.read_bytes(), path
    assert (service.folder / "tokens").stat().st_mode & 0o077 == 0
    assert (service.state_folder / "key").stat().st_mode & 0o077 == 0


def test_an_idle_server_reads_its_changed_token_file_within_a_second(tmp_path: Path) -> None:
    """Nobody asks it anything."""
    with Service(tmp_path / "idle") as idle:
        tokens = idle.folder / "tokens"
        tokens.write_text(f"{tokens.read_text()}bob {TOKEN}-of-bob\n")
        told = "1 plain token replaced by the hash"  # once at its start
        eventually(lambda: idle.log().count(told) == 2, "the server to read its tokens", 10.0)
        assert f"{TOKEN}-of-bob" not in tokens.read_text()
        tokens.write_text(f"{tokens.read_text()}a line of words\n")
        eventually(lambda: "stay as they were" in idle.log(), "the server to refuse the line", 10.0)
        with idle.caller(f"{TOKEN}-of-bob") as caller:
            assert caller.http.get("/v1/jobs").status_code == 200


def test_a_body_without_a_token_is_not_read(service: Service) -> None:
    """Somebody without a token cannot make the server hold what he sends."""

    def endless() -> Iterator[bytes]:
        for _ in range(256):
            yield b"x" * 65536

    hung_up = contextlib.suppress(httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError)  # as good
    with httpx.Client(base_url=service.url, timeout=60, trust_env=False) as http, hung_up:
        assert http.post("/v1/programs", content=endless()).status_code == 401
    assert not any(p.is_file() for p in Path(service.store_folder).glob("programs/**/*"))
