"""A server that hangs: it takes calls and never answers them."""

import threading

from .mcp_server import Note, Tool, serve


def _think(_: dict[str, object], note: Note) -> str:
    note("thinking")
    threading.Event().wait()
    raise AssertionError("nobody sets it")


def _ping(_: dict[str, object], __: Note) -> str:
    return "pong"


if __name__ == "__main__":
    serve(
        "stuck",
        {
            "think": Tool("Think about a question, without end.", {"question": "string"}, _think),
            "ping": Tool("Answer at once.", {}, _ping),
        },
    )
