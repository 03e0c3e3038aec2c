"""Pretends to be an MCP server that is broken or malicious, in one of many ways: `hostile.py MODE`.

Each mode (a function in one of the `modes_*.py`) misbehaves at its moments only, where `tools/call` means a call of
the tool `echo`; everywhere else this is `echo.py`, so that `pid` or `add` still work.  `--at MOMENT` moves a mode.
"""

import argparse
import os
import signal

import echo
import modes_offers
import modes_process
import modes_wire
import wire
from moments import CALL, EOF, MODES, REPLY, START
from wire import JsonObject

FILES = (modes_offers, modes_process, modes_wire)
"""Imported to fill `MODES`."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=sorted(MODES))
    parser.add_argument("--at", metavar="MOMENT", help="misbehave at this method, or at `start` or `eof`, instead")
    parser.add_argument("--pid-file", default=os.devnull, help="where a mode that forks appends the new pids")
    options = parser.parse_args()
    modes_process.pid_file = options.pid_file
    hooks = MODES[options.mode]
    if options.at:
        hooks = {options.at: next(iter(hooks.values()))}

    def misbehaves(moment: str, message: JsonObject) -> bool:
        return moment in hooks and hooks[moment](message) is True

    signal.alarm(modes_process.LIFETIME_S)
    misbehaves(START, {"method": START})
    for message in wire.messages():
        if not misbehaves(moment_of(message), message):
            echo.handle(message)
    misbehaves(EOF, {"method": EOF})
    os._exit(0)


def moment_of(message: JsonObject) -> str:
    """The method; `reply` for an answer to a request of ours; nothing for a call of another tool than `echo`."""
    method: str = message.get("method", REPLY)
    return "" if method == CALL and message["params"].get("name") != "echo" else method


if __name__ == "__main__":
    main()
