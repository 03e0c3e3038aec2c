"""Pretends to be an MCP server whose author changes his mind: what it offers is read from a file, and again when that
changes.

The file is one JSON object: `tools`, whole definitions, and `instructions`, which count at the next start.  It is
looked at twenty times a second; a change is announced.  Every tool answers `NAME from TEXT`, the text being `says`.
With `--wait` the server is slow: it answers nothing before that file is there.  Of the legacy era, or with `--modern`
of the other.
"""

import argparse
import json
import os
import threading
import time
from pathlib import Path
from typing import Final

import calls
import echo
import modern
import wire
from wire import JsonObject

LOOK_S: Final = 0.05


class Mind:
    """What the file says."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self.offer: JsonObject = {}

    def look(self) -> bool:
        """Read the file if it is not what it was; whether it was."""
        status = self._path.stat()
        stamp = (status.st_mtime_ns, status.st_ino)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        self.offer = json.loads(self._path.read_bytes())
        tools = {tool["name"]: (tool, self._answer) for tool in self.offer["tools"]}
        calls.TOOLS.clear()
        calls.TOOLS.update(tools)
        return True

    def _answer(self, call: calls.Call) -> None:
        text = f"{call.params['name']} from {self.offer.get('says', 'me')}"
        call.say(text, structuredContent={"pid": os.getpid()})


def _watch(mind: Mind, call: type[calls.Call]) -> None:
    while True:
        time.sleep(LOOK_S)
        if mind.look():
            call(0, {}).announce()


def main() -> None:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--modern", action="store_true")
    parser.add_argument("--wait", type=Path, metavar="PATH", help="answer nothing before PATH is there")
    options = parser.parse_args()
    while options.wait is not None and not options.wait.exists():
        wire.wait_for_eof(LOOK_S)
    mind = Mind(options.file)
    mind.look()
    instructions = mind.offer.get("instructions", "")
    echo.INITIALIZED["instructions"] = instructions
    discover = modern.METHODS["server/discover"]
    modern.METHODS["server/discover"] = lambda params: discover(params) | {"instructions": instructions}
    call = modern.Call if options.modern else calls.Call
    threading.Thread(target=_watch, args=(mind, call), daemon=True).start()
    wire.serve(modern.handle if options.modern else echo.handle)


if __name__ == "__main__":
    main()
