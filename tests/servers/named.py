"""Pretends to be `echo.py` with tools of these names besides, each of which says its own: `named.py NAME...`."""

import sys

import wire
from calls import TOOLS, Call
from echo import handle


def main() -> None:
    definition, _ = TOOLS["echo"]
    for name in sys.argv[1:]:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        TOOLS[name] = (definition | {"name": name, "inputSchema": schema}, _say_name)
    wire.serve(handle)


def _say_name(call: Call) -> None:
    call.say(call.params["name"], structuredContent={"name": call.params["name"], "arguments": call.arguments})


if __name__ == "__main__":
    main()
