"""What a client can be asked, by its capabilities as it declared them.  Pure."""

from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from quarterdeck_protocol.mcp.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND
from quarterdeck_protocol.questions import MAX_CAPABILITIES_BYTES, Question, QuestionEnd

NOTHING: Final = b"{}"
"""The capabilities of a client that can be asked nothing."""


class _Elicitation(msgspec.Struct, gc=False):
    form: dict[str, Raw] | UnsetType | None = UNSET
    url: dict[str, Raw] | UnsetType | None = UNSET


class _Capabilities(msgspec.Struct, gc=False):
    elicitation: _Elicitation | None = None
    sampling: dict[str, Raw] | None = None
    roots: dict[str, Raw] | None = None


class _Mode(msgspec.Struct, gc=False):
    mode: str = "form"


def refusal(capabilities: bytes, question: Question) -> QuestionEnd | None:
    """The error with which a question ends that a client of these capabilities cannot be asked; None when it can.

    An `elicitation` without a mode means forms (specification of 2025-11-25, client/elicitation, "Capabilities").
    """
    able = _read(capabilities)
    match question.method:
        case "elicitation/create" if able.elicitation is not None:
            mode = _mode_of(question.params)
            has_form, has_url = able.elicitation.form is not UNSET, able.elicitation.url is not UNSET
            can = has_url if mode == "url" else has_form or not has_url
            return None if can else QuestionEnd(code=INVALID_PARAMS, message=f"the client takes no {mode} elicitation")
        case "sampling/createMessage" if able.sampling is not None:
            return None
        case "roots/list" if able.roots is not None:
            return None
    return QuestionEnd(code=METHOD_NOT_FOUND, message="the client did not declare that capability")


def _read(capabilities: bytes) -> _Capabilities:
    if len(capabilities) > MAX_CAPABILITIES_BYTES:
        return _Capabilities()
    try:
        return _capabilities.decode(capabilities)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Capabilities()


def _mode_of(params: bytes) -> str:
    try:
        return _mode.decode(params).mode
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "form"


_capabilities: Final = msgspec.json.Decoder(_Capabilities)
_mode: Final = msgspec.json.Decoder(_Mode)
