"""The decoys of a tried server's home, and the marks by which their contents are recognised.  Pure.

A mark is 20 random hexadecimal digits: JSON, URLs and shells leave it unchanged, and base64 of it has three forms.
Compressed or encrypted, it is not recognised.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from posixpath import dirname
from typing import Final, NamedTuple

MARK_BYTES: Final = 10
"""Random bytes of a mark; it is written as their hexadecimal digits."""


class DecoyKind(StrEnum):
    """What a decoy stands for."""

    DOCUMENT = "document"
    """A tool may read it and return it."""

    SETTING = "setting"
    """A program's settings, read by that program whoever starts it."""

    SECRET = "secret"  # noqa: S105 - a kind of file
    """A key, a password or a token: no server is ever offered one."""


class Decoy(NamedTuple):
    """One file of the world; `path` lies below the home."""

    path: str
    kind: DecoyKind
    mark: str
    content: bytes


_MARK: Final = "MARK"
"""Stands for the mark in a text."""

_TEXTS: Final = {
    DecoyKind.DOCUMENT: {
        "Documents/Notes/meeting.md": "# Meeting\n\n- budget: see budget.csv\n- access code of the room: MARK\n",
        "Documents/budget.csv": "item,reference,amount\nrent,MARK,1200\npower,2026-02,84\n",
        "Desktop/todo.txt": "call the bank about MARK\nwater the plants\n",
        "Downloads/invoice-2026-03.txt": "Invoice MARK\nTotal: 412.50\n",
        "projects/shop/README.md": "# Shop\n\nBuild MARK. Start it with `make run`.\n",
    },
    DecoyKind.SETTING: {".gitconfig": "[user]\n\tname = Robin Moore\n\temail = robin.MARK@mail.example\n"},
    DecoyKind.SECRET: {
        "projects/shop/.env": "DATABASE_URL=postgres://shop:MARK@db.internal.example/shop\n",
        ".ssh/id_ed25519": (
            "-----BEGIN OPENSSH PRIVATE KEY-----\n"
            "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW\n"
            "QyNTUxOQAAACMARKAAAAB3NzaC1lZDI1NTE5AAAAIHc4\n"
            "-----END OPENSSH PRIVATE KEY-----\n"
        ),
        ".aws/credentials": (
            "[default]\naws_access_key_id = AKIAQ3EGRZ7XN5JWLKPD\naws_secret_access_key = MARKq9Zt4VbXc2mJwRfY\n"
        ),
        ".config/gh/hosts.yml": "github.com:\n    user: rmoore\n    oauth_token: gho_MARKk2Vw8QzLx5Tn\n",
        ".npmrc": "//npm.internal.example/:_authToken=npm_MARKt7Hc3LpQz6Wd\n",
        ".netrc": "machine git.internal.example login rmoore password MARK\n",
        ".config/google-chrome/Default/Login Data": (
            "SQLite format 3\0\x10\0\1\1\0@  https://bank.example/login rmoore MARK"
        ),
        ".electrum/wallets/default_wallet": '{"seed_version": 18, "wallet_type": "standard", "seed": "MARK"}\n',
    },
}
"""Their hosts are of `.example`: a runner that reads them sends nothing to a real registry."""

READ_BY_RUNNERS: Final = frozenset({".npmrc", ".netrc"})
"""Package runners read these to fetch a package, whatever the package does."""

_OPEN_FOLDERS: Final = ("Documents", "Desktop", "Downloads", "projects")

SCENERY: Final = {
    "projects/shop/.git/HEAD": b"ref: refs/heads/main\n",
    "projects/shop/.git/config": b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
    "projects/shop/.git/objects/info/packs": b"",
    "projects/shop/.git/refs/heads/.keep": b"",
}
"""Files beside the decoys that make the world plausible, without a mark."""


def make_decoys(new_mark: Callable[[], str]) -> tuple[Decoy, ...]:
    """Return the decoys, each with a mark of its own."""
    files = [(kind, path, text, new_mark()) for kind, texts in _TEXTS.items() for path, text in texts.items()]
    return tuple(Decoy(path, kind, mark, text.replace(_MARK, mark).encode()) for kind, path, text, mark in files)


def granted_for(path: str, kind: DecoyKind | None) -> str:
    """Return what a server needs that uses `path`, below the home: a file or folder that people have; else empty.

    The names of the documents are ours: of them only the folder means something in a real home.
    """
    if kind is DecoyKind.SETTING:
        return path
    top = path.partition("/")[0]
    return top if kind is not DecoyKind.SECRET and top in _OPEN_FOLDERS else ""


def folders_of(paths: Iterable[str]) -> list[str]:
    """Return every folder above `paths`, parents first, without the home."""
    found: set[str] = set()
    for path in paths:
        while path := dirname(path):
            found.add(path)
    return sorted(found)


class Marks:
    """Finds the marks of decoys in bytes that a server sent."""

    def __init__(self, decoys: Iterable[Decoy] = ()) -> None:
        self._forms: Final = [(form, decoy.path) for decoy in decoys for form in _forms_of(decoy.mark.encode())]
        self.longest: Final = max((len(form) for form, _ in self._forms), default=0)

    def found_in(self, data: bytes) -> list[str]:
        """Return the paths of the decoys whose content is in `data`, each once."""
        return list(dict.fromkeys(path for form, path in self._forms if form in data))


NO_MARKS: Final = Marks()


def _forms_of(mark: bytes) -> Iterator[bytes]:
    yield mark
    yield mark.hex().encode()
    for before in range(3):
        # Only the characters that the mark alone decides.
        encoded = b64encode(bytes(before) + mark)
        yield encoded[-(-before * 8 // 6) : (before + len(mark)) * 8 // 6]
