"""The three small servers of the demonstration: `python -m quarterdeck.demo.servers tidy`, `stuck` or `fragile`.

Each is the least MCP server that can be written: the legacy era over stdio, tools only, standard library only.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

Note = Callable[[str], None]
"""Tell the caller how far a call is."""

VERSION: Final = "2025-11-25"

METHOD_NOT_FOUND: Final = -32601

CRASH_STATUS: Final = 70
"""The exit status of a server whose tool raised: BSD's EX_SOFTWARE."""

_writing = threading.Lock()


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: `parameters` maps each argument, all required, to its JSON type."""

    description: str
    parameters: Mapping[str, str]
    run: Callable[[dict[str, object], Note], str]


def serve(name: str, tools: Mapping[str, Tool]) -> None:
    """Answer until stdin ends, each call in a thread of its own.  A tool that raises takes the process with it."""
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params") or {}
        if "id" not in message or method is None:
            continue
        match method:
            case "initialize":
                info = {"name": name, "version": "1.0.0"}
                _answer(message["id"], {"protocolVersion": VERSION, "capabilities": {"tools": {}}, "serverInfo": info})
            case "ping":
                _answer(message["id"], {})
            case "tools/list":
                _answer(message["id"], {"tools": [_definition(name, tool) for name, tool in tools.items()]})
            case "tools/call" if params.get("name") in tools:
                threading.Thread(target=_call, args=(tools[params["name"]], message["id"], params), daemon=True).start()
            case _:
                _write({"id": message["id"], "error": {"code": METHOD_NOT_FOUND, "message": f"no method {method}"}})


def _call(tool: Tool, request_id: object, params: dict[str, dict[str, object]]) -> None:
    token = (params.get("_meta") or {}).get("progressToken")

    def note(text: str) -> None:
        if token is not None:
            progress = {"progressToken": token, "progress": 1, "message": text}
            _write({"method": "notifications/progress", "params": progress})

    try:
        text = tool.run(params.get("arguments") or {}, note)
    except Exception as error:
        sys.stderr.write(f"cannot go on: {type(error).__name__}: {error}\n")
        sys.stderr.flush()
        os._exit(CRASH_STATUS)
    _answer(request_id, {"content": [{"type": "text", "text": text}]})


def _definition(name: str, tool: Tool) -> dict[str, object]:
    properties = {parameter: {"type": kind} for parameter, kind in tool.parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": tool.description, "inputSchema": schema}


def _answer(request_id: object, result: dict[str, object]) -> None:
    _write({"id": request_id, "result": result})


def _write(message: dict[str, object]) -> None:
    with _writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def _add(arguments: dict[str, object], _: Note) -> str:
    return str(int(str(arguments["a"])) + int(str(arguments["b"])))


def _count_words(arguments: dict[str, object], _: Note) -> str:
    return str(len(str(arguments["text"]).split()))


def _think(_: dict[str, object], note: Note) -> str:
    note("thinking")
    threading.Event().wait()
    raise AssertionError("nobody sets it")


def _ping(_: dict[str, object], __: Note) -> str:
    return "pong"


def _divide(arguments: dict[str, object], _: Note) -> str:
    return f"{float(str(arguments['a'])) / float(str(arguments['b'])):g}"


SERVERS: Final[Mapping[str, Mapping[str, Tool]]] = {
    "tidy": {
        "add": Tool("Add two whole numbers.", {"a": "integer", "b": "integer"}, _add),
        "count_words": Tool("Count the words of a text.", {"text": "string"}, _count_words),
    },
    "stuck": {
        "think": Tool("Think about a question, without end.", {"question": "string"}, _think),
        "ping": Tool("Answer at once.", {}, _ping),
    },
    "fragile": {"divide": Tool("Divide a by b.", {"a": "number", "b": "number"}, _divide)},
}
"""One works, one takes a call and never answers it, one crashes on a bad argument."""


if __name__ == "__main__":
    serve(sys.argv[1], SERVERS[sys.argv[1]])
