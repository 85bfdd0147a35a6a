"""A real browser, headless Chromium, driven over the WebDriver protocol (https://www.w3.org/TR/webdriver2/)."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE_S, wait_until

DRIVER = shutil.which("chromedriver")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(
    DRIVER is None or BROWSER is None, reason="needs Chromium and its driver (Debian: chromium, chromium-driver)"
)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    # In a container /dev/shm may be too small for a page.
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1280,860",
]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""The key of an element's id in an answer."""


class Browser:
    """A browser with one window."""

    def __init__(self, port: int, session: str) -> None:
        self._port = port
        self._session = session

    def open(self, address: str) -> None:
        """Load a page."""
        self._ask("POST", "/url", {"url": address})

    @property
    def address(self) -> str:
        """The address of the present page."""
        return str(self._ask("GET", "/url"))

    def text(self, selector: str) -> str:
        """Return the visible text of the first element that fits a CSS selector; empty if there is none."""
        return str(self.run(f"return document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def wait_for(self, selector: str, text: str) -> None:
        """Return once an element has a text: pages load, and replace their parts, while a test continues."""
        wait_until(lambda: text in self.text(selector))

    def click(self, selector: str) -> None:
        """Click on an element."""
        self._ask("POST", f"/element/{self._find(selector)}/click", {})

    def write(self, selector: str, text: str) -> None:
        """Replace the text of a field by typing."""
        element = self._find(selector)
        self._ask("POST", f"/element/{element}/clear", {})
        self._ask("POST", f"/element/{element}/value", {"text": text})

    def run(self, script: str) -> Any:
        """Return the result of JavaScript, as `return document.title`."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": []})

    def label(self, selector: str) -> str:
        """Return the name of an element in the accessibility tree."""
        return str(self._ask("GET", f"/element/{self._find(selector)}/computedlabel"))

    def press(self, key: str) -> None:
        """Press and release one key."""
        strokes = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]})

    def log(self) -> list[str]:
        """Return the console messages since the last call: errors of scripts, and violations of the security policy."""
        return [str(entry["message"]) for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def use_colours(self, scheme: str) -> None:
        """Prefer `light` or `dark` from now on."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        call = {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}}
        self._ask("POST", "/goog/cdp/execute", call)

    def screenshot(self, path: Path) -> None:
        """Write a picture of the window, as PNG."""
        path.write_bytes(b64decode(self._ask("GET", "/screenshot")))

    def _find(self, selector: str) -> str:
        return str(self._ask("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT])

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        return ask(self._port, method, f"/session/{self._session}{path}", body)


def ask(port: int, method: str, path: str, body: object = None) -> Any:
    """Send one command to the driver and return the value of its answer."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = json.loads(connection.getresponse().read())["value"]
    assert not (isinstance(answer, dict) and "error" in answer), answer
    return answer


@contextmanager
def running_browser(directory: Path) -> Iterator[Browser]:
    """Provide a browser for the length of a block, with its profile in a directory."""
    assert DRIVER is not None
    output = directory / "driver.log"
    with output.open("wb") as log:
        driver = subprocess.Popen([DRIVER, "--port=0"], stdout=log, stderr=log)
    try:
        wait_until(lambda: port_in(output) is not None or driver.poll() is not None)
        port = port_in(output)
        assert port is not None, output.read_text()
        wait_until(lambda: is_ready(port))
        options = {"binary": BROWSER, "args": [*FLAGS, f"--user-data-dir={directory / 'profile'}"]}
        wanted = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
        session = ask(port, "POST", "/session", {"capabilities": wanted})["sessionId"]
        ask(port, "POST", f"/session/{session}/timeouts", {"implicit": 10_000})
        try:
            yield Browser(port, session)
        finally:
            ask(port, "DELETE", f"/session/{session}")
    finally:
        driver.terminate()
        driver.wait()


def port_in(log: Path) -> int | None:
    """Return the port that the driver has chosen, once it says so."""
    found = re.search(r"started successfully on port (\d+)", log.read_text(errors="replace"))
    return None if found is None else int(found[1])


def is_ready(port: int) -> bool:
    """Return whether the driver answers."""
    try:
        return bool(ask(port, "GET", "/status")["ready"])
    except OSError:
        return False
