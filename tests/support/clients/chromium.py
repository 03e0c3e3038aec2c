"""Headless Chromium, driven by its DevTools protocol over a pair of pipes: no driver, no port."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import pytest

from support.waiting import eventually

PROGRAM: Final = shutil.which("chromium")

needs_chromium: Final = pytest.mark.skipif(PROGRAM is None, reason="needs Chromium: apt-get install chromium")

FLAGS: Final = (
    *("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-sandbox", "--hide-scrollbars", "--disable-extensions", "--disable-background-networking"),
)

CHANGED_S: Final = 20.0


class Chromium:
    """One page of a browser."""

    def __init__(self, to_fd: int, answers: IO[bytes]) -> None:
        self._to = to_fd
        self._from = answers
        self._number = 0
        self._pending = b""
        self.events: list[dict[str, Any]] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = ""
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._call(method, **parameters)

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is awaited."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until an expression is true, through navigations too."""
        expression = f"Boolean({condition})"

        def is_so() -> bool:
            answer = self._answer("Runtime.evaluate", {"expression": expression, "returnByValue": True})
            return bool(answer.get("result", {}).get("result", {}).get("value") is True)

        eventually(is_so, CHANGED_S, condition)

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def click(self, selector: str) -> None:
        """Click as a person: at the middle of the element, which has to be there and in sight."""
        x, y = self.run(f"""(() => {{ const found = document.querySelector({json.dumps(selector)});
            found.scrollIntoView({{block: 'center'}}); const box = found.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2]; }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        code = {"Tab": 9, "Enter": 13}[key]
        more = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **more)
            more = {}

    def look(self, *, width: int = 1100, height: int = 800, dark: bool = False) -> None:
        """The size of the window, and what the person prefers."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path, *, width: int, height: int) -> None:
        """The upper left part of the page."""
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", clip=clip)["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        answer = self._answer(method, parameters)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _answer(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if getattr(self, "_session", ""):
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer: dict[str, Any] = json.loads(self._read())
            if answer.get("id") == self._number:
                return answer
            self.events.append(answer)

    def _read(self) -> bytes:
        while b"\0" not in self._pending:
            chunk = os.read(self._from.fileno(), 65536)
            assert chunk, "Chromium has ended"
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\0")
        return line


@contextmanager
def chromium(folder: Path) -> Iterator[Chromium]:
    """A browser with a profile of its own in `folder`; it has ended at the end."""
    assert PROGRAM is not None
    to_it, from_it = os.pipe(), os.pipe()
    # It reads descriptor 3, and writes descriptor 4.
    script = f'exec "$@" 3<&{to_it[0]} 4>&{from_it[1]}'
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", PROGRAM, *FLAGS, f"--user-data-dir={folder / 'chromium'}"],
        pass_fds=(to_it[0], from_it[1]),
        env={**os.environ, "HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(to_it[0])
    os.close(from_it[1])
    try:
        with os.fdopen(from_it[0], "rb") as answers:
            yield Chromium(to_it[1], answers)
    finally:
        os.close(to_it[1])
        process.terminate()
        process.wait(30)
