"""A server that crashes: one bad argument, and the whole process is gone."""

from .mcp_server import Note, Tool, serve


def _divide(arguments: dict[str, object], _: Note) -> str:
    return f"{float(str(arguments['a'])) / float(str(arguments['b'])):g}"


if __name__ == "__main__":
    serve("fragile", {"divide": Tool("Divide a by b.", {"a": "number", "b": "number"}, _divide)})
