"""A headless Chromium, driven over a pipe by its DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = "chromium"
TIMEOUT_S = 60


class Browser:
    """A browser with one page."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._number = 0
        self._rest = b""
        self._session = ""
        self._events: list[str] = []
        self.requests: list[str] = []
        """The addresses that the page asked for."""
        self.messages: list[str] = []
        """What the console said."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime", "Accessibility"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol; its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._from, 1 << 20)
            assert part, "the browser has ended"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(line)
        event, values = answer.get("method", ""), answer.get("params", {})
        self._events.append(event)
        if event == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif event in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            self.messages.append(json.dumps(values))
        return answer

    def open(self, file: Path, width: int, dark: bool = False, height: int = 900) -> Browser:
        """Open a file in a window of this width, and wait until it is drawn."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        self.use_media("screen", dark)
        for kept in (self._events, self.requests, self.messages):
            kept.clear()
        self.call("Page.navigate", url=file.as_uri())
        while "Page.loadEventFired" not in self._events:
            self._receive()
        return self

    def use_media(self, media: str, dark: bool = False) -> None:
        """Show the page as on a screen, or as on paper."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def click_download(self, selector: str, folder: Path) -> Path:
        """Click a link that saves a file; the file."""
        self.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
        self.evaluate(f"document.querySelector({selector!r}).click()")
        end = time.monotonic() + TIMEOUT_S
        while not (saved := [f for f in folder.iterdir() if f.suffix != ".crdownload"]):
            assert time.monotonic() < end, "nothing was saved"
            time.sleep(0.05)
        return saved[0]

    def accessibility(self) -> list[dict[str, str]]:
        """What a screen reader is given: role, name and description of each part."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            {key: node.get(key, {}).get("value", "") for key in ("role", "name", "description")}
            for node in nodes
            if not node["ignored"]
        ]

    def screenshot(self, **clip: float) -> bytes:
        """The whole page, or a part of it, as PNG."""
        part = {"clip": {"scale": 1, **clip}} if clip else {}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, **part)
        return base64.b64decode(shot["data"])

    def print_pdf(self) -> bytes:
        """The page as it is printed on A4."""
        self.use_media("")
        found = self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)
        return base64.b64decode(found["data"])


@contextmanager
def open_browser() -> Iterator[Browser]:
    """A browser, which ends with this."""
    program = shutil.which(PROGRAM)
    assert program, f"there is no {PROGRAM}: scripts/test --full installs it"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()

        def connect() -> None:
            """Chromium reads from descriptor 3 and writes to 4."""
            copies = os.dup(theirs_in), os.dup(theirs_out)
            for number, copy in enumerate(copies, 3):
                os.dup2(copy, number)

        process = subprocess.Popen(
            [
                program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                "--no-first-run", "--disable-background-networking", "--disable-dev-shm-usage",
                f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank",
            ],
            preexec_fn=connect, pass_fds=(3, 4), start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Browser(ours_out, ours_in)
        finally:
            os.close(ours_out)
            os.close(ours_in)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(TIMEOUT_S)
