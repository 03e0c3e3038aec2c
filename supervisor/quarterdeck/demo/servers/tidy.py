"""A well-behaved server."""

from .mcp_server import Note, Tool, serve


def _add(arguments: dict[str, object], _: Note) -> str:
    return str(int(str(arguments["a"])) + int(str(arguments["b"])))


def _count_words(arguments: dict[str, object], _: Note) -> str:
    return str(len(str(arguments["text"]).split()))


if __name__ == "__main__":
    serve(
        "tidy",
        {
            "add": Tool("Add two whole numbers.", {"a": "integer", "b": "integer"}, _add),
            "count_words": Tool("Count the words of a text.", {"text": "string"}, _count_words),
        },
    )
