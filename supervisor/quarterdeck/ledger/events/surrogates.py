"""JSON whose texts may hold lone surrogates, which servers send and UTF-8 cannot say: they are kept as escapes.  Pure.

The quick codec refuses them, both ways; the slow one of the standard library is asked then, and only then.
"""

import json
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

ESCAPE: Final = b"\\ud"
"""How the escape of a surrogate begins, as we write it."""


def encode(value: object) -> bytes:
    """The value as JSON; with a lone surrogate in it, all of ASCII."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode("ascii")


def load(data: bytes) -> Any:
    """The plain value of JSON that the quick codec refused because of a surrogate in it.

    Raises:
        msgspec.DecodeError: there is none, so that it was right to refuse; or it is no JSON for other reasons.
    """
    if ESCAPE not in data.lower():
        raise msgspec.DecodeError("it is not JSON")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None


def decode(data: bytes, kind: type[T]) -> T:
    """The value of this type.

    Raises:
        msgspec.MsgspecError: there is none.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.convert(load(data), kind)


def as_raw(value: object) -> msgspec.Raw:
    """A plain value as JSON that is kept as it stands."""
    return msgspec.Raw(json.dumps(value, separators=(",", ":")).encode("ascii"))
