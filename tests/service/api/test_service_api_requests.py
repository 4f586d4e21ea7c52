"""The interface in one process: every path answers what it says, and errors are problems with the family's fields."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from hashlib import sha256

import pytest
from api_fakes import PROGRAM, Api, opened

from shardc.hlo.errors import InputError, RunError
from shardc.launcher.executors.problems import from_problem
from shardc.service.api.context import ApiSettings
from shardc.service.api.job_updates import follow

NOWHERE = "0" * 64


def run(scenario, tmp_path, **options):
    async def all_of_it():
        async with opened(tmp_path, **options) as api:
            await scenario(api)

    asyncio.run(all_of_it())


def test_a_program_is_named_by_its_content(tmp_path):
    async def scenario(api: Api):
        answer = await api.client.post("/v1/programs", content=PROGRAM, headers={"Content-Type": "text/plain"})
        digest = sha256(PROGRAM).hexdigest()
        assert (answer.status_code, answer.json()) == (201, {"program": digest, "bytes": len(PROGRAM), "kind": "hlo"})
        assert (await api.client.get(f"/v1/programs/{digest}")).json() == answer.json()
        assert (await api.client.head(f"/v1/programs/{digest}")).status_code == 200
        for method in ("GET", "HEAD"):
            assert (await api.client.request(method, f"/v1/programs/{NOWHERE}")).status_code == 404
        assert await api.upload() == digest

    run(scenario, tmp_path)


@pytest.mark.parametrize(
    ("data", "kind", "status", "words"),
    [
        (b"", "text/plain", 422, "empty"),
        (b" \n", "application/octet-stream", 422, "empty"),
        (b"a\0b", "application/octet-stream", 422, "known binary format"),
        (PROGRAM, "application/json", 415, "application/octet-stream"),
        (PROGRAM, "", 415, "has no type"),
        (PROGRAM * 40, "text/plain", 413, "--max-upload"),
    ],
)
def test_what_is_no_program_is_refused(tmp_path, data, kind, status, words):
    async def scenario(api: Api):
        answer = await api.client.post("/v1/programs", content=data, headers={"Content-Type": kind} if kind else {})
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert words in str(from_problem(answer.json()))
        assert api.store.statistics().programs == 0

    run(scenario, tmp_path, settings=ApiSettings(max_upload=1000))


def test_a_compressed_body_is_refused(tmp_path):
    async def scenario(api: Api):
        for path, kind in (("/v1/programs", "text/plain"), ("/v1/jobs", "application/json")):
            headers = {"Content-Type": kind, "Content-Encoding": "gzip"}
            answer = await api.client.post(path, content=PROGRAM, headers=headers)
            assert (answer.status_code, answer.json()["where"]) == (415, "Content-Encoding")

    run(scenario, tmp_path)


def test_balancers_ask_for_the_head_of_a_sign_of_life(tmp_path):
    async def scenario(api: Api):
        assert (await api.client.head("/healthz")).status_code == 200

    run(scenario, tmp_path)


@pytest.mark.parametrize(
    ("given", "status"),
    [("{}", 304), ("W/{}", 304), ('"x", {}', 304), ("*", 304), ('"x"', 200), ("", 200), ("x{}", 200)],
)
def test_what_is_known_is_not_sent_again(tmp_path, given, status):
    async def scenario(api: Api):
        api.store.put(NOWHERE, {"report.json": b"{}"}, {})
        for path in (f"/v1/artifacts/{NOWHERE}/report.json", "/", "/docs"):
            tag = (await api.client.get(path)).headers["etag"]
            answer = await api.client.get(path, headers={"If-None-Match": given.format(tag)})
            assert (answer.status_code, answer.headers["etag"]) == (status, tag)

    run(scenario, tmp_path)


def test_a_body_is_counted_whatever_its_length_is_said_to_be(tmp_path):
    async def parts(number: int):
        for _ in range(number):
            yield b"x" * 100

    async def scenario(api: Api):
        for content in (parts(100), parts(11)):
            answer = await api.client.post("/v1/programs", content=content, headers={"Content-Type": "text/plain"})
            assert answer.status_code == 413
            assert answer.json()["limit"] == 1000

    run(scenario, tmp_path, settings=ApiSettings(max_upload=1000))


def test_bodies_together_take_no_more_than_there_is_room(tmp_path):
    async def scenario(api: Api):
        settled = asyncio.Event()

        async def slow():
            yield PROGRAM
            await settled.wait()

        headers = {"Content-Type": "text/plain"}
        waiting = asyncio.ensure_future(api.client.post("/v1/programs", content=slow(), headers=headers))
        await asyncio.sleep(0.05)
        refused = await api.client.post("/v1/programs", content=PROGRAM, headers=headers)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        settled.set()
        assert (await waiting).status_code == 201
        await api.upload()

    run(scenario, tmp_path, settings=ApiSettings(max_upload=len(PROGRAM), uploads=1))


def test_a_body_that_stalls_is_given_up(tmp_path):
    async def parts():
        while True:
            yield b"x"
            await asyncio.sleep(0.01)

    async def scenario(api: Api):
        answer = await api.client.post("/v1/programs", content=parts(), headers={"Content-Type": "text/plain"})
        assert (answer.status_code, answer.headers["connection"]) == (408, "close")

    run(scenario, tmp_path, settings=ApiSettings(stall_seconds=0.05))


def test_a_job_from_the_order_to_its_files(tmp_path):
    async def scenario(api: Api):
        program = await api.upload()
        answer = await api.submit(program=program, name="step")
        job = answer.json()
        assert (answer.status_code, job["state"], job["name"]) == (202, "queued", "step")
        assert answer.headers["location"] == job["href"] == f"/v1/jobs/{job['id']}"
        assert (await api.client.get(job["href"])).json() == job
        assert (await api.client.get("/v1/jobs?limit=5")).json() == {"jobs": [job]}
        api.store.put(job["key"], {"program.json": b"{}", "report.html": b"<p>"}, {"kind": "inspect"})
        again = await api.submit(program=program, name="step")
        assert (again.status_code, again.json()["state"]) == (200, "done")
        entry = again.json()["entry"]
        assert entry == (await api.client.get(f"/v1/artifacts/{job['key']}")).json()
        found = {a["name"]: a for a in entry["artifacts"]}
        data = await api.client.get(found["program.json"]["href"])
        assert data.content == b"{}"
        assert data.headers["etag"] == f'"{sha256(data.content).hexdigest()}"' == f'"{found["program.json"]["sha256"]}"'
        assert "immutable" in data.headers["cache-control"]
        assert json.loads(b64decode(data.headers["shardc-manifest"])) == entry
        kept = await api.client.get(found["program.json"]["href"], headers={"If-None-Match": data.headers["etag"]})
        assert (kept.status_code, kept.content) == (304, b"")
        page = await api.client.get(found["report.html"]["href"])
        assert page.headers["content-security-policy"].startswith("sandbox allow-scripts")

    run(scenario, tmp_path)


def test_a_large_file_comes_whole(tmp_path):
    async def scenario(api: Api):
        data = bytes(range(256)) * 12_345
        api.store.put(NOWHERE, {"executable.shardc": data}, {"warnings": ["much"] * 2000})
        answer = await api.client.get(f"/v1/artifacts/{NOWHERE}/executable.shardc")
        assert answer.content == data
        assert answer.headers["content-length"] == str(len(data))
        assert "shardc-manifest" not in answer.headers, "it is too long for a header"

    run(scenario, tmp_path)


@pytest.mark.parametrize(
    ("order", "status", "place"),
    [
        ({"kind": "inspect", "program": NOWHERE}, 404, None),
        ({"kind": "inspect"}, 422, "order.program"),
        ({"kind": "inspect", "program": "../../etc/passwd"}, 422, "order.program"),
        ({"kind": "inspect", "program": NOWHERE, "path": "/etc/passwd"}, 422, "order.path"),
        ({"kind": "explain", "program": NOWHERE, "remedies": "3"}, 422, "order.remedies"),
        ({"kind": "boil", "program": NOWHERE}, 422, "order.kind"),
        ({"program": NOWHERE}, 422, "order.kind"),
        ([], 422, "order"),
    ],
)
def test_an_order_that_does_not_hold(tmp_path, order, status, place):
    async def scenario(api: Api):
        answer = await api.client.post("/v1/jobs", json=order)
        problem = answer.json()
        assert (answer.status_code, problem["where"], problem["error"]) == (status, place, "InputError")
        assert isinstance(from_problem(problem), InputError)
        assert problem.get("missing") == ([NOWHERE] if status == 404 else None)

    run(scenario, tmp_path)


@pytest.mark.parametrize("text", [b"", b"{", b"[" * 100_000, b'{"kind": NaN}', b"\xff", b"1" * 6000])
def test_a_body_that_is_no_json(tmp_path, text):
    async def scenario(api: Api):
        answer = await api.client.post("/v1/jobs", content=text, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400
        assert answer.json()["error"] == "InputError"

    run(scenario, tmp_path)


def test_a_full_queue_says_when_to_come_back(tmp_path):
    async def scenario(api: Api):
        program = await api.upload()
        answers = [await api.submit(program=program, name=f"n{n}") for n in range(4)]
        assert [a.status_code for a in answers] == [202, 202, 202, 429]
        assert answers[3].headers["retry-after"] == "7"
        assert isinstance(from_problem(answers[3].json()), RunError)

    run(scenario, tmp_path)


def test_waiting_ends_with_the_job_or_the_time(tmp_path):
    async def scenario(api: Api):
        job = (await api.submit(program=await api.upload())).json()
        for wrong in ("61", "-1", "nan", "soon"):
            assert (await api.client.get(f"{job['href']}?wait={wrong}")).status_code == 422
        early = await api.client.get(f"{job['href']}?wait=0.05")
        assert early.json()["state"] == "queued"
        waiting = asyncio.ensure_future(api.client.get(f"{job['href']}?wait=50"))
        await asyncio.sleep(0.05)
        api.scheduler.change(job["id"], state="running", progress={"stage": "read"})
        await asyncio.sleep(0.05)
        assert not waiting.done()
        api.scheduler.change(job["id"], state="done", finished=1.0)
        assert (await waiting).json()["state"] == "done"
        await nobody_watches(api)

    run(scenario, tmp_path)


async def nobody_watches(api: Api) -> None:
    while any(api.scheduler.watching.values()):
        await asyncio.sleep(0.01)


def events_of(text: str):
    for block in filter(None, text.split("\n\n")):
        lines = [line for line in block.split("\n") if not line.startswith(":")]
        if lines:
            assert lines[0] == "event: job"
            yield json.loads(lines[1].removeprefix("data: "))


def test_a_client_that_vanishes_is_forgotten(tmp_path):
    async def scenario(api: Api):
        job = (await api.submit(program=await api.upload())).json()
        for pause in (0.0, 0.001, 0.05):  # while the scheduler is asked, and while nothing happens
            updates = asyncio.ensure_future(listen_once(api, job["id"]))
            await asyncio.sleep(pause)
            updates.cancel()
            with pytest.raises(asyncio.CancelledError):
                await updates
        await asyncio.sleep(0.05)
        await nobody_watches(api)

    run(scenario, tmp_path)


async def listen_once(api: Api, name: str) -> None:
    async with follow(api.app.state.context, name) as updates:
        while await updates.next_change() is not None:
            pass


def test_events_follow_a_job_to_its_end(tmp_path):
    async def scenario(api: Api):
        job = (await api.submit(program=await api.upload())).json()
        updates = asyncio.ensure_future(api.client.get(f"{job['href']}/events"))
        for fields in ({"state": "running"}, {"progress": {"stage": "compile"}}, {"state": "failed", "problem": {}}):
            await asyncio.sleep(0.05)
            api.scheduler.change(job["id"], **fields)
        answer = await updates
        assert answer.headers["content-type"].startswith("text/event-stream")
        states = [(e["state"], e["progress"]) for e in events_of(answer.text)]
        stage = {"stage": "compile"}
        assert states == [("queued", {}), ("running", {}), ("running", stage), ("failed", stage)]
        await nobody_watches(api)

    run(scenario, tmp_path)


def test_the_end_of_the_server_ends_all_waiting(tmp_path):
    async def scenario(api: Api):
        job = (await api.submit(program=await api.upload())).json()
        asked = [api.client.get(f"{job['href']}{more}") for more in ("?wait=50", "/events")]
        waiting = [asyncio.ensure_future(a) for a in asked]
        await asyncio.sleep(0.05)
        api.ending.draining = True
        refused = await api.submit(program=job["key"])
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
        assert (await api.client.get("/healthz")).json() == {"status": "draining"}
        api.ending.over.set()
        assert [a.status_code for a in await asyncio.gather(*waiting)] == [200, 200]
        await nobody_watches(api)

    run(scenario, tmp_path)


def test_cancelling(tmp_path):
    async def scenario(api: Api):
        job = (await api.submit(program=await api.upload())).json()
        for _ in range(2):
            assert (await api.client.delete(job["href"])).json()["state"] == "cancelled"
        assert (await api.client.delete("/v1/jobs/unknown")).status_code == 404

    run(scenario, tmp_path)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("PUT", "/v1/jobs", 405),
        ("GET", "/v1/jobs/no%0Ajob", 422),
        ("GET", "/v1/jobs/unknown", 404),
        ("GET", "/v1/jobs/unknown/events", 404),
        ("GET", "/v1/jobs?limit=0", 422),
        ("GET", f"/v1/artifacts/{NOWHERE}", 404),
        ("GET", f"/v1/artifacts/{NOWHERE}/report.json", 404),
        ("GET", f"/v1/artifacts/{NOWHERE}/..%2Fkey", 404),
        ("GET", "/v1/artifacts/../../state/key", 404),
        ("GET", "/explorer/..%2Ffiles.py", 404),
        ("GET", "/docs/nothing", 404),
    ],
)
def test_refusals_are_problems(tmp_path, method, path, status):
    async def scenario(api: Api):
        answer = await api.client.request(method, path)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == status
        assert answer.headers.get("allow") == ("GET, POST" if status == 405 else None)
        assert answer.headers["x-content-type-options"] == "nosniff"

    run(scenario, tmp_path)


def test_a_fault_of_the_server_is_a_problem_without_its_details(tmp_path):
    async def scenario(api: Api):
        api.scheduler.jobs = lambda limit: 1 / 0  # type: ignore[method-assign]
        answer = await api.client.get("/v1/jobs")
        assert answer.status_code == 500
        assert "division" not in answer.text

    run(scenario, tmp_path)


def test_lists_and_metrics(tmp_path):
    async def scenario(api: Api):
        machines = (await api.client.get("/v1/machines")).json()["machines"]
        assert {"h100-dgx", "tpu-v5p"} <= {m["name"] for m in machines}
        assert all(m["levels"] and m["device"]["memory_bytes"] > 0 for m in machines)
        targets = (await api.client.get("/v1/targets")).json()
        assert {"cpu", "cuda-emulated", "cuda:sm_90"} <= set(targets["targets"])
        assert (await api.client.get("/v1/key")).json() == {"key": "6b" * 32}
        info = (await api.client.get("/v1/info")).json()
        assert info["cpu"].keys() == {"triple", "cpu", "features"}
        assert info["limits"]["upload_bytes"] == ApiSettings().max_upload
        text = (await api.client.get("/metrics")).text
        assert 'shardc_makings_total{kind="inspect"} 2.0' in text
        assert 'shardc_jobs_total{kind="inspect",state="done"} 2.0' in text
        assert 'shardc_http_requests_total{method="GET",route="/v1/info",status="200"} 1.0' in text
        assert "shardc_store_bytes" in text

    run(scenario, tmp_path, settings=ApiSettings(key=b"k" * 32))


def test_pages_are_static_and_from_nowhere_else(tmp_path):
    async def scenario(api: Api):
        for path in ("/", "/docs"):
            page = await api.client.get(path)
            assert page.headers["content-type"].startswith("text/html")
            assert "default-src 'none'" in page.headers["content-security-policy"]
            assert "//" not in page.text.replace("<!--", "")
            unchanged = await api.client.get(path, headers={"If-None-Match": page.headers["etag"]})
            assert unchanged.status_code == 304
        assert len((await api.client.get("/docs/swagger-ui-bundle.js")).content) > 100_000

    run(scenario, tmp_path)
