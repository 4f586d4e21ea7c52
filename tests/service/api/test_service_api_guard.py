"""Who may ask: tokens, hashed in their file, and where requests come from when there are none."""

from __future__ import annotations

import asyncio
import stat
from hashlib import sha256

import pytest
from api_fakes import Api, opened

from shardc.hlo.errors import EnvironmentProblem, InputError
from shardc.service.api.context import ApiSettings
from shardc.service.api.guard import is_loopback
from shardc.service.api.tokens import TokenFile, Tokens, open_tokens

TOKEN = "correct-horse-battery-staple"
HASH = sha256(TOKEN.encode()).hexdigest()
OPEN = {"/", "/docs", "/docs/docs.js", "/explorer/index.html", "/healthz"}


def run(scenario, tmp_path, **options):
    async def all_of_it():
        async with opened(tmp_path, **options) as api:
            await scenario(api)

    asyncio.run(all_of_it())


WITH_TOKENS = ApiSettings(tokens=Tokens({"ci": HASH, "other": "0" * 64}))


@pytest.mark.parametrize(
    ("given", "ok"),
    [
        (f"Bearer {TOKEN}", True),
        (f"bearer  {TOKEN} ", True),
        (None, False),
        ("", False),
        ("Bearer", False),
        ("Bearer ", False),
        (f"Bearer {TOKEN[:-1]}", False),
        (f"Bearer {TOKEN}x", False),
        (f"Basic {TOKEN}", False),
        (f"Bearer {HASH}", False),
        (f"Bearer sha256:{HASH}", False),
        ("Bearer \udce9\udc80".encode("utf-8", "surrogateescape"), False),
        (TOKEN, False),
    ],
)
def test_a_token_opens_and_nothing_else_does(tmp_path, given, ok):
    async def scenario(api: Api):
        paths = [r.path.replace("{name}", "nothing") for r in api.app.routes if hasattr(r, "methods")]
        assert len(paths) > 12
        headers = {} if given is None else {"Authorization": given}
        for path in [*paths, "/nothing", "/explorer", "/docs/%2e%2e/v1/info"]:
            for method in ("GET", "POST"):
                answer = await api.client.request(method, path, headers=headers)
                if path in OPEN or path.startswith(("/docs/", "/explorer/")):
                    assert answer.status_code in (200, 404, 405)
                elif ok:
                    assert answer.status_code != 401
                else:
                    assert answer.status_code == 401, path
                    assert answer.headers["www-authenticate"].startswith("Bearer")
                    assert TOKEN not in answer.text

    run(scenario, tmp_path, settings=WITH_TOKENS)


def test_two_headers_are_none(tmp_path):
    async def scenario(api: Api):
        twice = [("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer x")]
        assert (await api.client.get("/v1/info", headers=twice)).status_code == 401

    run(scenario, tmp_path, settings=WITH_TOKENS)


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost", None, 200),
        ("127.0.0.1:8377", None, 200),
        ("[::1]:8377", None, 200),
        ("localhost:8377", "http://localhost:8377", 200),
        ("LOCALHOST:8377", "http://localhost:8377", 200),
        ("evil.example", None, 403),
        ("127.0.0.1.evil.example", None, 403),
        ("evil.example:8377", "http://evil.example:8377", 403),
        ("localhost:8377", "http://evil.example", 403),
        ("localhost:8377", "http://localhost:3000", 403),
        ("localhost:8377", "null", 403),
        ("localhost:8377", "http://[", 403),
        ("[", None, 403),
        ("", None, 403),
    ],
)
def test_without_tokens_only_this_computer_asks(tmp_path, host, origin, status):
    async def scenario(api: Api):
        headers = {"Host": host} | ({"Origin": origin} if origin else {})
        assert (await api.client.get("/v1/jobs", headers=headers)).status_code == status

    run(scenario, tmp_path)


def test_with_tokens_any_name_will_do(tmp_path):
    async def scenario(api: Api):
        headers = {"Host": "compile.example", "Authorization": f"Bearer {TOKEN}"}
        assert (await api.client.get("/v1/jobs", headers=headers)).status_code == 200

    run(scenario, tmp_path, settings=WITH_TOKENS)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "127.3.2.1", "::1"])
def test_loopback_names(name):
    assert is_loopback(name)
    assert not is_loopback(name + ".example")


@pytest.mark.parametrize("name", ["0.0.0.0", "::", "10.0.0.1", "", "example.org"])
def test_names_that_others_reach(name):
    assert not is_loopback(name)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_token_is_made_and_told_once(tmp_path):
    path = tmp_path / "secrets" / "tokens"
    tokens, told = open_tokens(path)
    token = told.rpartition(" ")[2]
    assert tokens.find(token) == "default"
    assert token not in path.read_text()
    assert mode_of(path) == 0o600
    again, nothing = open_tokens(path)
    assert (again.find(token), nothing) == ("default", "")


def test_plain_tokens_are_replaced_by_their_hashes(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"# of the team\nci {TOKEN}\n\nsha256:{'a' * 64}\n{TOKEN}-two\nold sha256:{'0' * 64}\n")
    tokens, told = open_tokens(path)
    assert [tokens.find(t) for t in (TOKEN, TOKEN + "-two", "x")] == ["ci", "line-5", None]
    assert "2 plain tokens" in told
    assert TOKEN not in path.read_text()
    assert path.read_text().splitlines()[:2] == ["# of the team", f"ci sha256:{HASH}"]
    assert mode_of(path) == 0o600
    assert open_tokens(path)[0].hashes == tokens.hashes


def look_twice(held):
    held.look()
    held.look()


def test_a_file_is_not_read_while_it_is_written(tmp_path):
    path, said = tmp_path / "tokens", []
    path.write_text(f"ci {TOKEN}\n")
    held = TokenFile(path, open_tokens(path)[0], said.append)
    path.write_text("ci ")
    held.look()
    path.write_text(f"ci {TOKEN}\nnew {TOKEN}-two\n")
    held.look()
    assert TOKEN in path.read_text() and said == []
    held.look()
    assert TOKEN not in path.read_text() and "2 plain tokens" in said[0]
    look_twice(held)
    assert len(said) == 1 and held.find(f"{TOKEN}-two") == "new"


def test_a_changed_file_counts_without_a_new_start(tmp_path):
    path, said = tmp_path / "tokens", []
    path.write_text(f"ci {TOKEN}\n")
    held = TokenFile(path, open_tokens(path)[0], said.append)
    look_twice(held)
    assert (held.find(TOKEN), said) == ("ci", [])
    path.write_text(f"ci {TOKEN}\nnew {TOKEN}-two\n")
    look_twice(held)
    assert held.find(f"{TOKEN}-two") == "new"
    assert TOKEN not in path.read_text()
    path.write_text(f"new {TOKEN}-two\n")
    look_twice(held)
    assert [held.find(t) for t in (TOKEN, f"{TOKEN}-two")] == [None, "new"]
    said.clear()
    for change in (lambda: path.write_text("short\n"), lambda: path.write_text(""), path.unlink):
        change()
        look_twice(held)
        assert [held.find(f"{TOKEN}-two"), held.find("short"), held.find("")] == ["new", None, None]
    assert len(said) == 3
    assert all("stay as they were" in text for text in said)
    assert not path.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "contains no token"),
        ("# nothing\n", "contains no token"),
        ("short\n", "at least"),
        ("a b c\n", "not a token"),
        (f"ci sha256:{'A' * 64}\n", "not a token"),
        ("ci sha256:\n", "not a token"),
        (f"ci {TOKEN}\nci {TOKEN}-two\n", "two tokens"),
    ],
)
def test_a_token_file_that_is_none(tmp_path, text, words):
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        open_tokens(path)
    assert path.read_text() == text


def test_a_token_file_that_cannot_be_read(tmp_path):
    with pytest.raises(EnvironmentProblem, match="cannot be used"):
        open_tokens(tmp_path)
