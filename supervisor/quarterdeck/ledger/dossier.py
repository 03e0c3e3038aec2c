"""What the table of calls keeps of a fault.  Pure.

Bounded, and without what a server answered: its own error texts are results, of which the ledger keeps none.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import msgspec

from quarterdeck_protocol.faults import Dossier, ProtocolFault

from .events.events import decode_json, encode_json

MAX_CHARS: Final = 1_000
"""Of a message, and of the last words of a server."""

MAX_HINT_CHARS: Final = 300
MAX_HINTS: Final = 5

_LOOK_CHARS: Final = 4 * MAX_CHARS
"""Secrets are looked for in so much, so that none is cut in two before it is recognised."""


class CallDossier(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A fault as it is kept; see `ProtocolFault`.  `reply_code` is that of a server's JSON-RPC error."""

    kind: str
    message: str = ""
    remedy: str = ""
    reply_code: int | None = None
    dossier: Dossier | None = None


def write_dossier(fault: ProtocolFault, redact: Callable[[str], str]) -> str:
    """Return the dossier of a fault as JSON; `redact` takes secrets out of a text."""

    def first(text: str, most: int = MAX_CHARS) -> str:
        return redact(text[:_LOOK_CHARS])[:most]

    found = fault.dossier
    if found is not None:
        tail = redact(found.stderr_tail[-_LOOK_CHARS:])[-MAX_CHARS:]
        hints = tuple(first(hint, MAX_HINT_CHARS) for hint in found.hints[:MAX_HINTS])
        found = replace(found, stderr_tail=tail, hints=hints, limit=found.limit and first(found.limit))
    kept = CallDossier(
        kind=fault.kind,
        message=first(fault.message) if fault.reply is None else "",
        remedy=first(fault.remedy or ""),
        reply_code=fault.reply.code if fault.reply is not None else None,
        dossier=found,
    )
    return encode_json(kept).decode()


def read_dossier(text: str) -> CallDossier | None:
    """Return a dossier that was written; None without one."""
    return decode_json(text.encode(), CallDossier) if text else None
