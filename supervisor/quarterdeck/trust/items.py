"""What can be approved of a server, each with the hash that an approval names: its launch, its instructions, its tools.

Pure.  A document is kept as it came; its hash is that of the JSON value in it, whatever the order of its keys.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from pydantic import ValidationError

from quarterdeck.config.native import NativeSettings
from quarterdeck.config.origin import FileRead
from quarterdeck.ledger.book import ItemKey
from quarterdeck.ledger.documents import hash_of
from quarterdeck.ledger.events import Subject
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig
from quarterdeck_protocol.contract import RemoteTool

VALUE_DIGITS: Final = 32
"""Of the hash that stands for a value which another could have written: no second value has it."""

SECRET_DIGITS: Final = 12
"""Of the hash that stands for a literal secret: enough to see that it changed."""


@dataclass(frozen=True, slots=True)
class Document:
    """One thing that can be approved, in one form.

    Attributes:
        key: which thing.
        hash: of this form; 64 hex digits.
        body: the form itself, as JSON.
    """

    key: ItemKey
    hash: str
    body: bytes


def tool_document(tool: RemoteTool) -> Document:
    """A tool: the server's whole tool object, members that nobody knows included."""
    body = tool.descriptor.definition or b"null"
    return Document(ItemKey(Subject.TOOL, tool.ref.name), hash_of(body), body)


def instructions_document(text: str) -> Document:
    """What a server tells models about itself; an empty text when it tells nothing."""
    return _of_value(Subject.INSTRUCTIONS, _sayable(text))


def launch_document(
    config: ServerConfig,
    row: Mapping[str, object] | None = None,
    key: bytes | None = b"",
    files: Mapping[str, FileRead] | None = None,
) -> Document:
    """How a server is started or reached.

    Of `env` and `headers` the names count alone; of a stranger's row the values, too.

    Args:
        config: the server.
        row: how a file configures it, variables not expanded: their values are none of the ledger's business.  None
            for a server that no file configures.
        key: a literal that looks like a secret is replaced by a part of its keyed hash, so that a change shows and
            nothing can be guessed from it.  None to show everything: nothing may hide in a stranger's command line.
        files: of the user's row, which another could have written: what values were taken from.  Then each of the row's
            own values counts too, and those of these files, as keyed hashes.  None for a row that nobody else could.
    """
    given = config.model_dump(mode="json", exclude_defaults=True) if row is None else row
    launch: dict[str, object] = {"transport": str(config.transport)}
    if isinstance(config, StdioServerConfig):
        launch["command"] = _text(given.get("command"))
        launch["args"] = _arguments(given.get("args"), key)
        launch["env"] = _named(given.get("env"), key)
        launch |= {key: _sayable_value(given[key]) for key in _PROCESS_KEYS if given.get(key) is not None}
    else:
        launch["url"] = _url(_text(given.get("url")), key)
        launch["headers"] = _named(given.get("headers"), key)
    if files is not None and key is not None:
        for name in ("env", "headers"):
            if name in launch:
                launch[name] = _values(given.get(name), key)
        launch["settings"] = {name: _sayable_value(given[name]) for name in sorted(_settings(config) & given.keys())}
        launch["files"] = {_sayable(name): _values(file.value, key) for name, file in files.items()}
    # The effective one, wherever the file says it: else a row could open itself from the top of its file.
    launch["trust"] = config.trust.value
    return _of_value(Subject.LAUNCH, launch)


def native_document(settings: NativeSettings) -> Document:
    """What the configuration says of native tools, variables expanded."""
    return _of_value(Subject.LAUNCH, settings.model_dump(mode="json", exclude_defaults=True))


def read_native(body: bytes) -> NativeSettings:
    """The settings of such a document; of one that cannot be read, the default."""
    try:
        return NativeSettings.model_validate(value_of(body))
    except ValidationError:
        return NativeSettings()


def value_of(body: bytes) -> object:
    """The JSON value of a document, None for one that cannot be read."""
    try:
        value: object = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return value


_PROCESS_KEYS: Final = ("cwd", "envFile", "inherit_env", "sandbox")

_SHOWN_KEYS: Final = frozenset({"id", "kind", "command", "args", "env", "url", "headers", "trust", *_PROCESS_KEYS})
"""What a launch shows of any row, or its key names."""

_SECRET_WORD: Final = re.compile(r"(?i)api-?_?key|token|secret|passw|credential")
_SECRET_NAME: Final = re.compile(
    r"(?i)(?:--?[\w-]{1,64}=)?[\w-]{0,64}?(?:api-?_?key|token|secret|passw|credential|authorization)[\w-]{0,64}(?:=|:\s*)"
)
"""`--token=`, `API_KEY=`, `--env=API_KEY=`, `Authorization: `.  Repetitions are bounded: a stranger's file is searched.
"""

_SECRET_TEXT: Final = re.compile(
    r"^(?:sk-|ghp_|gho_|github_pat_|xox[abpr]-|glpat-|AKIA|eyJ|ya29\.|Bearer )\S{8,}|^[A-Za-z0-9_\-]{40,}$"
)
_QUERY_SECRET: Final = re.compile(r"(?i)([?&][\w-]{0,64}?(?:key|token|secret|password|sig|auth)[\w-]{0,64}=)([^&#]+)")
_USERINFO: Final = re.compile(r"(?<=://)([^/@:\s]*:)([^/@\s]+)(?=@)")
_SCHEME: Final = re.compile(r"(?i)(?:bearer|basic|token) +")
"""What stands before a secret in a header."""

_NO_SECRET: Final = re.compile(r"[\s;|&`$(){}<>\\]")
"""What no secret holds, and a command may: nothing that runs may hide behind the name of a secret."""

_REFERENCE: Final = re.compile(r"\$\{[^}]*\}")
_LONE_REFERENCE: Final = re.compile(r"\$\{[A-Za-z_:][A-Za-z0-9_:]*\}")


def _of_value(subject: Subject, value: object) -> Document:
    body = msgspec.json.encode(value, order="sorted")
    return Document(ItemKey(subject), hash_of(body), body)


def _arguments(value: object, key: bytes | None) -> list[str]:
    arguments = [_text(each) for each in value] if isinstance(value, Sequence) and not isinstance(value, str) else []
    hidden: list[str] = []
    is_secret = False
    for argument in arguments:
        name = _SECRET_NAME.match(argument)
        if is_secret and not argument.startswith("-"):
            hidden.append(_hidden(argument, key))
        elif name is not None:
            hidden.append(name[0] + _hidden(argument[name.end() :], key))
        else:
            hidden.append(_hidden(argument, key) if _SECRET_TEXT.match(argument) else _url(argument, key))
        is_secret = argument.startswith("-") and "=" not in argument and _SECRET_WORD.search(argument) is not None
    return hidden


def _url(text: str, key: bytes | None) -> str:
    text = _QUERY_SECRET.sub(lambda found: found[1] + _hidden(found[2], key), text)
    return _USERINFO.sub(lambda found: found[1] + _hidden(found[2], key), text)


def _hidden(text: str, key: bytes | None) -> str:
    """A stand-in for a literal secret; a reference to one is none."""
    if (scheme := _SCHEME.match(text)) is not None:
        return scheme[0] + _hidden(text[scheme.end() :], key)
    if key is None or not text or _REFERENCE.search(text) or _NO_SECRET.search(text):
        return text
    return f"(secret {hmac.new(key, text.encode(), hashlib.sha256).hexdigest()[:SECRET_DIGITS]})"


def _named(value: object, key: bytes | None) -> object:
    """Names alone; of a stranger's row the values too: a PATH of his choosing is another program."""
    if not isinstance(value, Mapping):
        return [] if key is not None else {}
    if key is None:
        return _sayable_value(value)
    return sorted(_text(name) for name in value)


def _settings(config: ServerConfig) -> set[str]:
    """What else a row of this kind may say."""
    return set(type(config).model_fields) - _SHOWN_KEYS


def _values(value: object, key: bytes) -> object:
    """Stand-ins for values, whether they look like secrets or not; a lone reference is none itself."""
    if isinstance(value, Mapping):
        return {_text(name): _values(member, key) for name, member in value.items() if member is not None}
    text = _text(value)
    if _LONE_REFERENCE.fullmatch(text):
        return text
    return f"(value {hmac.new(key, text.encode(), hashlib.sha256).hexdigest()[:VALUE_DIGITS]})"


def _text(value: object) -> str:
    return _sayable(value) if isinstance(value, str) else "" if value is None else str(value)


def _sayable(text: str) -> str:
    """What UTF-8 cannot say is escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def _sayable_value(value: object) -> object:
    if isinstance(value, str):
        return _sayable(value)
    if isinstance(value, Mapping):
        return {_text(key): _sayable_value(member) for key, member in value.items()}
    if isinstance(value, Iterable):
        return [_sayable_value(member) for member in value]
    return value
