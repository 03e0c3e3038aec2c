"""How a server is started or reached, as it is approved.  Pure.

The ledger keeps each secret in it as a part of its keyed hash: a change shows, and the secret cannot be guessed.
Whoever decides sees in clear what could be a command, so that nothing that runs hides as a secret, and all of a
project's row.  A launch that older rules kept in another form is recognised by its hashes.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

import msgspec

from quarterdeck.config.load.origin import FileRead
from quarterdeck.ledger.events.events import Subject, hash_of
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck_protocol.configs import AskMode, ServerConfig, StdioServerConfig
from quarterdeck_protocol.secrets import Hide, hide_args, hide_text, hide_value, hide_whole
from quarterdeck_protocol.secrets.recognise import STAND_IN

from .documents import Document, sayable, value_of

SECRET_DIGITS: Final = 12
"""Of the hash that stands for a secret: enough to see that it changed."""

VALUE_DIGITS: Final = 32
"""Of the hash that stands for a value which another could have written: no second value has it."""

MAX_TRIES: Final = 2_000
"""Ways that are tried to find a text behind the hashes in another."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch to approve; `key` makes its stand-ins for secrets.

    Attributes:
        document: as the ledger keeps it.
        shown: the same as JSON, for the person who decides.
        clear: the same with nothing hidden; never written anywhere.
    """

    document: Document
    shown: bytes = field(default=b"", repr=False)
    clear: object = field(default=None, repr=False)
    key: bytes = field(default=b"", repr=False)

    def is_described_by(self, body: bytes | None) -> bool:
        """Whether a document that the ledger keeps is of this very launch, whatever of it was hidden."""
        return body is not None and _is_same(value_of(body), self.clear, self.key)

    def compared(self, body: bytes | None) -> object:
        """A kept document as it stands beside `shown`: what is the same reads the same."""
        return revealed(value_of(body or b"null"), self.clear, value_of(self.shown), self.key)


def launch_of(
    config: ServerConfig,
    row: Mapping[str, object] | None = None,
    key: bytes = b"",
    *,
    is_project: bool = False,
    files: Mapping[str, FileRead] | None = None,
) -> Launch:
    """Describe how a server is started or reached: of `env` and `headers` the names, in a project's row the values too.

    `row` is how a file configures the server, variables not expanded; None if no file does. `key` makes the stand-ins
    for secrets. `files` are given for a user's row that another could have written: those that values were taken from.
    Then each of its own values, and of theirs, counts too, as a keyed hash.
    """
    stand_in = stands_in(key)

    def launch(hide: Hide) -> dict[str, object]:
        found = _launch(config, row, hide, is_project=is_project)
        return found if files is None else found | _all_values(config, row or {}, hide, key, files)

    clear = value_of(msgspec.json.encode(launch(str)))
    kept = launch(stand_in)
    shown = clear if is_project else launch(lambda secret: secret if _RUNS.search(secret) else stand_in(secret))
    body = msgspec.json.encode(kept, order="sorted")
    document = Document(ItemKey(Subject.LAUNCH), hash_of(body), body)
    return Launch(document, msgspec.json.encode(shown, order="sorted"), clear, key)


def stands_in(key: bytes) -> Hide:
    """What the ledger keeps in place of a secret."""
    return lambda secret: f"(secret {_digest(secret, key)})"


def redacted_launch(body: bytes, key: bytes) -> bytes:
    """A launch document as an older ledger kept it, with the secrets in it hidden; others are unchanged."""
    launch = value_of(body)
    if not isinstance(launch, dict):
        return body
    hide = stands_in(key)
    found = {name: _redacted_member(name, member, hide) for name, member in launch.items()}
    return msgspec.json.encode(found, order="sorted") if found != launch else body


def revealed(stored: object, clear: object, shown: object, key: bytes) -> object:
    """A stored value in which each text that describes the one in `clear` reads as that in `shown`, of one shape."""
    if isinstance(stored, str):
        return shown if isinstance(clear, str) and _describes(stored, clear, key) else stored
    if isinstance(stored, dict) and isinstance(clear, dict) and isinstance(shown, dict):
        return {name: revealed(member, clear.get(name), shown.get(name), key) for name, member in stored.items()}
    if isinstance(stored, list) and isinstance(clear, list) and isinstance(shown, list):
        members = zip_longest(stored, clear[: len(stored)], shown[: len(stored)])
        return [revealed(member, before, after, key) for member, before, after in members]
    return stored


_PROCESS_KEYS: Final = ("cwd", "envFile", "inherit_env", "sandbox", "seal")

_WAY_KEYS: Final = ("proxy", "ca_file", "client_cert", "client_key", "internet_only")
_SHOWN_KEYS: Final = frozenset(
    {"id", "kind", "command", "args", "env", "url", "headers", "auth", "trust", "ask", "protocol"}
    | {*_PROCESS_KEYS, *_WAY_KEYS}
)
_LONE_REFERENCE: Final = re.compile(r"\$\{[A-Za-z_:][A-Za-z0-9_:]*\}")
_VALUE: Final = re.compile(r"\(value [0-9a-f]{32}\)")

_RUNS: Final = re.compile(r"[\s;|&`$(){}<>\\]")
"""Characters of commands, which hardly any secret has."""

_EVERY: Final = frozenset({"env", "headers"})


def _launch(
    config: ServerConfig, row: Mapping[str, object] | None, hide: Hide, *, is_project: bool
) -> dict[str, object]:
    given = config.model_dump(mode="json", exclude_defaults=True) if row is None else row
    launch: dict[str, object] = {"transport": str(config.transport)}
    if isinstance(config, StdioServerConfig):
        launch["command"] = _hidden_text(_text(given.get("command")), hide)
        launch["args"] = _hidden_args(_words(given.get("args")), hide)

        def hide_variable(name: str, value: str) -> str:
            return hide(value) if STAND_IN.search(value) else hide_value(name, value, hide)

        launch["env"] = _named(given.get("env"), hide_variable, is_project=is_project)
        launch |= {name: _hidden_value(given[name], hide) for name in _PROCESS_KEYS if given.get(name) is not None}
    else:
        launch["url"] = _hidden_text(_text(given.get("url")), hide)
        launch["headers"] = _named(
            given.get("headers"), lambda _, value: hide_whole(value, hide), is_project=is_project
        )
        launch |= {name: _hidden_value(given[name], hide) for name in _WAY_KEYS if given.get(name) is not None}
        if isinstance(login := given.get("auth"), Mapping) and login:
            launch["auth"] = {_text(name): _login_member(name, member, hide) for name, member in login.items()}
    # The effective one, wherever the file says it: else a row could open itself from the top of its file.
    launch["trust"] = config.trust.value
    if config.ask is not AskMode.LABEL:
        launch["ask"] = config.ask.value
    if config.protocol is not None:
        launch["protocol"] = config.protocol.value
    return launch


def _all_values(
    config: ServerConfig, row: Mapping[str, object], hide: Hide, key: bytes, files: Mapping[str, FileRead]
) -> dict[str, object]:
    named = "env" if isinstance(config, StdioServerConfig) else "headers"
    settings = set(type(config).model_fields) - _SHOWN_KEYS
    return {
        named: _values(row.get(named), key),
        "settings": {name: _hidden_value(row[name], hide) for name in sorted(settings & row.keys())},
        "files": {sayable(name): _values(file.value, key) for name, file in files.items()},
    }


def _values(value: object, key: bytes) -> object:
    """Return stand-ins for values, secret or not; a lone reference stays."""
    if isinstance(value, Mapping):
        return {_text(name): _values(member, key) for name, member in value.items() if member is not None}
    text = _text(value)
    return text if _LONE_REFERENCE.fullmatch(text) else f"(value {_digest(text, key, VALUE_DIGITS)})"


def _hidden_text(text: str, hide: Hide) -> str:
    # What looks like a stand-in in a configuration is none: it would pass for the secret that it once stood for.
    return hide(text) if STAND_IN.search(text) else hide_text(text, hide)


def _hidden_args(args: list[str], hide: Hide) -> list[str]:
    hidden = hide_args(args, hide)
    return [hide(arg) if STAND_IN.search(arg) else kept for arg, kept in zip(args, hidden, strict=True)]


def _hidden_value(value: object, hide: Hide) -> object:
    return _named_member("", value, lambda _, text: _hidden_text(text, hide))


def _named(value: object, hide: Callable[[str, str], str], *, is_project: bool) -> object:
    """Return the names alone, and in a stranger's row the values too: a PATH of his choosing is another program."""
    if not isinstance(value, Mapping):
        return {} if is_project else []
    if not is_project:
        return sorted(_text(name) for name in value)
    return {_text(name): _named_member(_text(name), member, hide) for name, member in value.items()}


def _named_member(name: str, member: object, hide: Callable[[str, str], str]) -> object:
    if isinstance(member, str):
        return hide(name, sayable(member))
    if isinstance(member, Mapping):
        return {_text(key): _named_member(_text(key), each, hide) for key, each in member.items()}
    if isinstance(member, Iterable):
        return [_named_member(name, each, hide) for each in member]
    return member


def _login_member(name: str, member: object, hide: Hide) -> object:
    if name == "client_secret" and isinstance(member, str):
        return hide_whole(sayable(member), hide)
    return _hidden_value(member, hide)


def _words(value: object) -> list[str]:
    return [_text(each) for each in value] if isinstance(value, Sequence) and not isinstance(value, str) else []


def _text(value: object) -> str:
    return sayable(value) if isinstance(value, str) else "" if value is None else str(value)


def _redacted_member(name: str, member: object, hide: Hide) -> object:
    if name == "files" or (
        name in _EVERY
        and isinstance(member, dict)
        and any(isinstance(each, str) and _VALUE.fullmatch(each) for each in member.values())
    ):
        return member
    if name == "args" and isinstance(member, list) and all(isinstance(each, str) for each in member):
        return hide_args(member, hide)
    if name in _EVERY and isinstance(member, dict):

        def hidden(key: str, value: str) -> str:
            return hide_whole(value, hide) if name == "headers" else hide_value(key, value, hide)

        return {key: _named_member(key, value, hidden) for key, value in member.items()}
    if name in _EVERY:
        return member
    if isinstance(member, str):
        return hide_text(member, hide)
    if isinstance(member, dict):
        return {key: _redacted_member(key, value, hide) for key, value in member.items()}
    return [_redacted_member(name, each, hide) for each in member] if isinstance(member, list) else member


def _digest(secret: str, key: bytes, digits: int = SECRET_DIGITS) -> str:
    return hmac.new(key, secret.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:digits]


def _is_same(stored: object, clear: object, key: bytes) -> bool:
    """Whether `stored` is `clear`, but for stand-ins; a text that only looks like one stands for nothing."""
    if isinstance(stored, str):
        return isinstance(clear, str) and _describes(stored, clear, key)
    if isinstance(stored, dict) and isinstance(clear, dict):
        return stored.keys() == clear.keys() and all(_is_same(stored[name], clear[name], key) for name in stored)
    if isinstance(stored, list) and isinstance(clear, list):
        return len(stored) == len(clear) and all(_is_same(*each, key) for each in zip(stored, clear, strict=True))
    return stored == clear


def _describes(stored: str, clear: str, key: bytes) -> bool:
    stand_ins = [found[0][len("(secret ") : -1] for found in STAND_IN.finditer(stored)]
    if not stand_ins:
        return stored == clear
    between = STAND_IN.split(stored)
    tries = MAX_TRIES

    def fits(place: int, index: int) -> bool:
        """Whether the rest of `clear` is the stand-ins from `index` on, and the texts between them."""
        nonlocal tries
        if index == len(stand_ins):
            return place == len(clear)
        text = between[index + 1]
        ends = [len(clear) - len(text)] if index + 1 == len(stand_ins) else range(place + 1, len(clear) + 1)
        for end in ends:
            if end <= place or not clear.startswith(text, end):
                continue
            tries -= 1
            if tries < 0:
                return False
            if _digest(clear[place:end], key) == stand_ins[index] and fits(end + len(text), index + 1):
                return True
        return False

    return clear.startswith(between[0]) and fits(len(between[0]), 0)
