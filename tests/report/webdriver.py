"""A headless Chromium, driven through ChromeDriver's WebDriver protocol with nothing but the standard library."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1440,1800",
)  # fmt: skip
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Browser:
    """One window. Selectors are CSS."""

    def __init__(self, port: int, profile: Path) -> None:
        self._base = f"http://127.0.0.1:{port}"
        options = {"args": [*FLAGS, f"--user-data-dir={profile}"], "binary": shutil.which("chromium")}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        session = self._send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{session['sessionId']}"

    def _send(self, method: str, path: str, data: object = None) -> Any:
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(self._base + path, body, {"Content-Type": "application/json"}, method=method)
        try:
            with DIRECT.open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {json.load(error)['value']['message']}") from error

    def open(self, path: Path) -> None:
        self.visit(path.as_uri())

    def visit(self, address: str) -> None:
        self._send("POST", f"{self._session}/url", {"url": address})

    def run(self, script: str, *arguments: object) -> Any:
        return self._send("POST", f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def _find(self, selector: str) -> str:
        found = self._send("POST", f"{self._session}/element", {"using": "css selector", "value": selector})
        return f"{self._session}/element/{found[ELEMENT]}"

    def click(self, selector: str) -> None:
        """Click the middle of an element with the mouse, as a user does."""
        self._send("POST", f"{self._find(selector)}/click", {})
        self.settle()

    def type(self, selector: str, text: str) -> None:
        self._send("POST", f"{self._find(selector)}/clear", {})
        self._send("POST", f"{self._find(selector)}/value", {"text": text})
        self.settle()

    def text(self, selector: str) -> str:
        return str(self._send("GET", f"{self._find(selector)}/text"))

    def count(self, selector: str) -> int:
        return int(self.run("return document.querySelectorAll(arguments[0]).length", selector))

    def pointer(self, *actions: dict[str, object]) -> None:
        """Perform mouse actions (W3C WebDriver, section 15)."""
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": list(actions)}
        self._send("POST", f"{self._session}/actions", {"actions": [mouse]})
        self.settle()

    def wheel(self, x: int, y: int, delta: int) -> None:
        turn = {"type": "scroll", "x": x, "y": y, "deltaX": 0, "deltaY": delta, "duration": 0}
        self._send(
            "POST", f"{self._session}/actions", {"actions": [{"type": "wheel", "id": "wheel", "actions": [turn]}]}
        )
        self.settle()

    def settle(self) -> None:
        """Wait for two frames: what was asked for is drawn."""
        self._send("POST", f"{self._session}/execute/async", {
            "script": "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))",
            "args": [],
        })  # fmt: skip

    def messages(self) -> list[str]:
        """Return what the console said since the last question."""
        return [row["message"] for row in self._send("POST", f"{self._session}/se/log", {"type": "browser"})]

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._send("GET", f"{self._session}/screenshot")))

    def close(self) -> None:
        self._send("DELETE", self._session)


@contextmanager
def browser() -> Iterator[Browser]:
    """Start ChromeDriver and a Chromium with a fresh profile; skip, naming what is missing, where there is none."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "driver.log"
        with log.open("wb") as output:
            driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=output, stderr=subprocess.STDOUT)
        try:
            window = Browser(_port(driver, log), Path(folder) / "profile")
            try:
                yield window
            finally:
                window.close()
        finally:
            driver.terminate()
            driver.wait(timeout=30)


def _port(driver: subprocess.Popen[bytes], log: Path) -> int:
    """Return the port that ChromeDriver chose, once it says so."""
    for _ in range(300):
        found = re.search(r"successfully on port (\d+)", log.read_text(encoding="utf-8", errors="replace"))
        if found:
            return int(found[1])
        assert driver.poll() is None, log.read_text(encoding="utf-8", errors="replace")
        time.sleep(0.1)
    raise AssertionError(log.read_text(encoding="utf-8", errors="replace"))
