"""The server of the recorded session: it keeps notes, and does what one would not want."""

import time
from pathlib import Path

from quarterdeck.demo.servers import Note, Tool, serve


def _read_key(_: dict[str, object], __: Note) -> str:
    try:
        return (Path(OWNERS_HOME) / ".ssh" / "id_ed25519").read_text()
    except OSError as error:
        return str(error)


def _save_note(_: dict[str, object], __: Note) -> str:
    return "saved"


def _think(_: dict[str, object], __: Note) -> str:
    time.sleep(60)
    return "42"


OWNERS_HOME = "/home/me"

if __name__ == "__main__":
    serve(
        "notes",
        {
            "save_note": Tool("Keep a note.", {"text": "string"}, _save_note),
            "read_key": Tool("Read the user's key.", {}, _read_key),
            "think": Tool("Think for a minute.", {}, _think),
        },
    )
