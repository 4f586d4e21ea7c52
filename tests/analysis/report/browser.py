"""A headless Chromium, spoken to over a pipe (Chrome DevTools Protocol): no library, no port."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

__all__ = ["Browser", "Tab", "luminance", "need_chromium"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PATIENCE = 60.0
#: The browser reads commands from file 3 and writes answers to file 4.
_START = (
    "import os, sys; r, w = map(int, sys.argv[1:3]); os.dup2(r, 3); os.dup2(w, 4); os.execv(sys.argv[3], sys.argv[3:])"
)
_FLAGS = (
    "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
    "--hide-scrollbars", "--force-color-profile=srgb", "--mute-audio", "--site-per-process",
)  # fmt: skip


def need_chromium() -> str:
    """The path of a Chromium; skips the test where there is none."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser to look at the page with: none of {', '.join(_NAMES)} is installed")
    return found


class Browser:
    """A browser process; use it in a ``with`` block, which ends it."""

    def __init__(self, path: str, folder: Path) -> None:
        self._folder = folder
        self._path = path
        self._number = 0
        self._unread = b""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        read, self._write = os.pipe()
        self._read, write = os.pipe()
        command = [sys.executable, "-c", _START, str(read), str(write), self._path, *_FLAGS]
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={self._folder}", "about:blank"],
            pass_fds=(read, write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, env={**os.environ, "HOME": str(self._folder)},
        )  # fmt: skip
        os.close(read)
        os.close(write)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._write)
        os.close(self._read)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events that come meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        for answer in self._messages():
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)
        raise AssertionError(f"no answer to {method}")

    def _messages(self) -> Iterator[dict[str, Any]]:
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            while b"\0" in self._unread:
                text, self._unread = self._unread.split(b"\0", 1)
                yield json.loads(text)
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            piece = os.read(self._read, 1 << 20) if ready else b""
            if not piece:
                return
            self._unread += piece

    def open(self, page: Path | str, **size: int) -> Tab:
        """A new tab that shows a file, or an address."""
        address = page if isinstance(page, str) else page.resolve().as_uri()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session, target)
        for domain in ("Page", "Runtime", "Network", "Log"):
            tab.call(f"{domain}.enable")
        tab.resize(**size)
        tab.go(address)
        return tab


class Tab:
    """A page in the browser."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser = browser
        self._session = session
        self._target = target

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)

    def frame(self, address: str) -> Tab:
        """What the first frame shows whose address begins so, of another origin than the page's."""
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            for found in self._browser.call("Target.getTargets")["targetInfos"]:
                if found["type"] == "iframe" and found["url"].startswith(address):
                    answer = self._browser.call("Target.attachToTarget", targetId=found["targetId"], flatten=True)
                    return Tab(self._browser, answer["sessionId"], found["targetId"])
            time.sleep(0.02)
        raise AssertionError(f"no frame shows {address}")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def slow_answers(self, milliseconds: int = 200) -> None:
        """From the next page on, bodies of answers come late: what a page shows too early is seen by the test."""
        late = f"""for (const read of ["json", "text"]) {{
            const soon = Response.prototype[read];
            Response.prototype[read] = async function () {{
                await new Promise((done) => setTimeout(done, {milliseconds}));
                return soon.call(this);
            }};
        }}"""
        self.call("Page.addScriptToEvaluateOnNewDocument", source=late)

    def go(self, address: str) -> None:
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def resize(self, width: int = 1280, height: int = 900, scale: float = 1) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    def dark(self, wanted: bool) -> None:
        value = "dark" if wanted else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def eval(self, code: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, code: str) -> None:
        """Until an expression is true."""
        end = time.monotonic() + _PATIENCE
        while not self.eval(code):
            assert time.monotonic() < end, f"never true: {code}"
            time.sleep(0.02)

    def click(self, selector: str) -> None:
        """A real click in the middle of the first element that matches."""
        x, y = self.middle(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def middle(self, selector: str) -> tuple[float, float]:
        code = f"""(() => {{
            const e = document.querySelector({json.dumps(selector)});
            e.scrollIntoView({{block: 'center'}});
            const r = e.getBoundingClientRect();
            return new Promise((done) => requestAnimationFrame(() => setTimeout(() =>
                done([r.x + r.width / 2, r.y + r.height / 2]), 0)));
        }})()"""
        # Scrolling may bring parts of a page into being, which move the others.
        before, now = None, self.eval(code)
        while before != now:
            before, now = now, self.eval(code)
        return float(now[0]), float(now[1])

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        text = {"Enter": "\r", " ": " "}.get(key, key if len(key) == 1 else "")
        arrows = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        codes = {"Backspace": 8, "Tab": 9, "Enter": 13, **arrows}
        code = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """The page as PNG."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def problems(self) -> list[str]:
        """Errors on the console, exceptions, and requests other than for the page itself."""
        self.eval("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))")
        out = []
        for event in self._browser.events:
            if event.get("sessionId") != self._session:
                continue
            told = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                out.append(f"exception: {told['exceptionDetails']}")
            elif event["method"] == "Log.entryAdded":
                out.append(f"log: {told['entry']['text']}")
            elif event["method"] == "Runtime.consoleAPICalled":
                out.append(f"console: {told['args']}")
            elif event["method"] == "Network.requestWillBeSent" and told["type"] != "Document":
                out.append(f"request: {told['request']['url'][:200]}")
        return out


def luminance(colour: str) -> float:
    """Of ``#rrggbb``, as WCAG 2.1 defines it."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
