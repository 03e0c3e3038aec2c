"""Bound what a server proposes to complete an argument with.  Pure."""

from typing import Final

import msgspec
from msgspec import Raw

COMPLETE: Final = "completion/complete"
"""The request that it answers."""

MAX_VALUES: Final = 100
"""Values of one answer, by the protocol (2025-11-25, server/utilities/completion); strict clients refuse more."""


def bounded_completion(body: bytes) -> bytes:
    """Return a result with at most `MAX_VALUES` values, and `hasMore` if some are left out; others are unchanged."""
    try:
        completion = _result.decode(body).completion
        values = _values.decode(completion["values"])
        if len(values) <= MAX_VALUES:
            return body
        members = _members.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError):
        return body
    total = completion.get("total", _NULL)
    bounded = {
        **completion,
        "values": values[:MAX_VALUES],
        "total": len(values) if total == _NULL else total,
        "hasMore": True,
    }
    return msgspec.json.encode({**members, "completion": bounded})


class _Result(msgspec.Struct):
    completion: dict[str, Raw]


_result: Final = msgspec.json.Decoder(_Result)
_values: Final = msgspec.json.Decoder(list[Raw])
_members: Final = msgspec.json.Decoder(dict[str, Raw])
_NULL: Final = Raw(b"null")
