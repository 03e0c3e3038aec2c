"""`echo.py` with a tool that keeps it from all else: what a server of one thread is like.  For the benches."""

import time

import echo
import wire
from calls import Call, tool


@tool("Answer after some milliseconds of work, and read nothing meanwhile.", {"ms": {"type": "number"}})
def work(call: Call) -> None:
    time.sleep(call.arguments["ms"] / 1000)
    call.say("done")


if __name__ == "__main__":
    wire.serve(echo.handle)
