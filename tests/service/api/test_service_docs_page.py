"""The page of the interface's description, in a real browser: behind a token, and from this server alone."""

from __future__ import annotations

from pathlib import Path

from tests.analysis.report.browser import Browser, need_chromium
from tests.service.service_harness import TOKEN, Service


def test_the_description_can_be_read_and_used(tmp_path: Path) -> None:
    with Browser(need_chromium(), tmp_path / "profile") as browser, Service(tmp_path / "service") as service:
        tab = browser.open("about:blank")
        tab.slow_answers()
        tab.go(service.url + "/docs")
        tab.wait("!document.getElementById('ask').hidden")
        tab.type("wrong")
        tab.press("Enter")
        tab.wait("document.getElementById('why').textContent.includes('does not know this token')")
        tab.eval("document.getElementById('token').select()")
        tab.type(TOKEN)
        tab.press("Enter")
        tab.wait("document.querySelectorAll('.opblock').length > 12")
        groups = tab.eval("[...document.querySelectorAll('.opblock-tag')].map((e) => e.dataset.tag)")
        assert groups == ["programs", "jobs", "artifacts", "service"]
        tab.click("[id$='info_v1_info_get'] button")
        tab.wait("document.querySelector('.try-out button') !== null")
        tab.click(".try-out button")
        tab.click("button.execute")
        tab.wait("document.querySelector('.live-responses-table')?.innerText.includes('upload_bytes')")
        told = tab.problems()
        asked = [line.removeprefix("request: ") for line in told if line.startswith("request: ")]
        assert all(address.startswith((service.url, "data:")) for address in asked), asked
        assert all("401" in line for line in told if not line.startswith("request: ")), told
