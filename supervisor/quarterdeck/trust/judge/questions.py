"""Judge what a server asks of its callers: name the server, and see whether it asks for a secret.  Pure.

What a person sees begins with the server's name; what a program sees has it in `_meta`.  A page that is to be opened is
shown with its host in clear: there is where a secret may be typed, so that only a form that asks for one is declined.
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw

from quarterdeck.fleet.core.rounds import INPUT_REQUIRED, too_much
from quarterdeck.trust.diff.values import quoted
from quarterdeck_protocol.configs import AskMode
from quarterdeck_protocol.faults import Delivery, FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND
from quarterdeck_protocol.mcp.tasks import EXTENSION
from quarterdeck_protocol.questions import Question, QuestionEnd
from quarterdeck_protocol.secrets import is_secret_name

SERVER_KEY: Final = "quarterdeck/server"
_MAX_HOST_CHARS: Final = 253


class Declined(msgspec.Struct, frozen=True):
    """A question that reaches nobody: what its server is told, and what its user, a line; empty for nothing."""

    end: QuestionEnd
    warning: str = ""


def judge_question(question: Question, mode: AskMode) -> Question | Declined:
    """The question as its client is to see it, or why it sees none."""
    if mode is AskMode.DENY:
        return _refused(METHOD_NOT_FOUND, "nobody can be asked: the user does not let this server ask")
    try:
        params = dict(_members.decode(question.params or b"{}"))
        if question.method == "elicitation/create":
            said = _elicitation.decode(question.params)
            found = _url_message(question, said) if said.mode == "url" else _form_message(question, said, mode)
            if isinstance(found, Declined):
                return found
            params["message"] = Raw(msgspec.json.encode(found))
        meta = _members.decode(params["_meta"]) if "_meta" in params else {}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _refused(INVALID_PARAMS, f"the params of {question.method} cannot be read")
    params["_meta"] = Raw(msgspec.json.encode({**meta, SERVER_KEY: question.server}))
    return msgspec.structs.replace(question, params=msgspec.json.encode(params))


def judge_input_required(server: str, body: bytes, mode: AskMode) -> bytes | ProtocolFault:
    """A result that asks its caller for more, as the caller is to see it, or why it is given none."""
    try:
        members = _members.decode(body)
        requests = _requests.decode(members.get("inputRequests", b"{}"))
        questions = [
            Question(server, _text.decode(request.get("method", b'""')), bytes(request.get("params", b"{}")), key)
            for key, request in requests.items()
        ]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _fault(server, f"{server} asks back, and its questions cannot be read", INPUT_REQUIRED)
    if why := too_much(questions):
        return _fault(server, f"{server} asks back, and {why}", INPUT_REQUIRED)
    judged: dict[str, dict[str, Raw]] = {}
    for question in questions:
        found = judge_question(question, mode)
        if isinstance(found, Declined):
            why = found.warning or f"what it asked for reaches nobody: {found.end.message}"
            return _fault(server, why, "question_held")
        judged[question.key] = {**requests[question.key], "params": Raw(found.params)}
    return msgspec.json.encode({**members, "inputRequests": judged}) if judged else body


def judged_capabilities(capabilities: bytes, mode: AskMode, *, has_tasks: bool) -> bytes:
    """What a server is told that its caller can: to be asked, and to take tasks, each as far as it may."""
    try:
        members = _members.decode(capabilities)
        extensions = _members.decode(members.get("extensions", b"{}"))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return b"{}"
    tasks = extensions.pop(EXTENSION, None)
    if mode is AskMode.DENY:
        members, extensions = {}, {}
    if has_tasks and tasks is not None:
        extensions[EXTENSION] = tasks
    members = {name: raw for name, raw in members.items() if name != "extensions"}
    return msgspec.json.encode({**members, "extensions": extensions} if extensions else members)


class _Elicitation(msgspec.Struct):
    message: str = ""
    mode: str = "form"
    url: str = ""
    requestedSchema: dict[str, object] = {}  # noqa: N815 - the wire's name


_text: Final = msgspec.json.Decoder(str)
_members: Final = msgspec.json.Decoder(dict[str, Raw])
_requests: Final = msgspec.json.Decoder(dict[str, dict[str, Raw]])
_elicitation: Final = msgspec.json.Decoder(_Elicitation)


def _form_message(question: Question, said: _Elicitation, mode: AskMode) -> str | Declined:
    place = _secret_in(said)
    if place is None:
        return f"{question.server} asks: {_visible(said.message)}"
    if mode is AskMode.ALLOW:
        return f"{question.server} asks: (what looks like a secret) {_visible(said.message)}"
    warning = (
        f"{question.server} asked for what looks like a secret (in {place}), and was declined: "
        'if it may, give its row "ask": "allow"'
    )
    return Declined(QuestionEnd(result=b'{"action":"decline"}'), warning)


def _secret_in(said: _Elicitation) -> str | None:
    """Find where a form's field or message asks for a secret; choices and yes-or-no fields take none."""
    properties = said.requestedSchema.get("properties")
    fields = properties if isinstance(properties, Mapping) else {}
    free = {str(name): field for name, field in fields.items() if _takes_text(field)}
    for name, field in free.items():
        told = field if isinstance(field, Mapping) else {}
        title, description = (str(told.get(key, "")) for key in ("title", "description"))
        is_number = told.get("type") in ("integer", "number")
        if any(_is_secret_label(text, is_number=is_number) for text in (name, title)) or _names_secret(description):
            return f"its field {quoted(name)}"
    return "its message" if free and _names_secret(said.message) else None


def _is_secret_label(text: str, *, is_number: bool) -> bool:
    if is_number:
        return not _NUMBERS.isdisjoint(_WORD.findall(text.lower()))
    return (is_secret_name(text) and text.lower() not in _PLAIN) or _names_secret(text)


_WORD: Final = re.compile(r"[a-z]+")
_NUMBERS: Final = frozenset({"pin", "otp", "passcode", "cvv", "cvc"})
_PLAIN: Final = frozenset({"key", "keys"})
"""What settings and tickets are called by, too."""


def _takes_text(field: object) -> bool:
    if not isinstance(field, Mapping):
        return True
    kinds = field.get("type")
    return "enum" not in field and "oneOf" not in field and kinds not in ("boolean", "array")


def _names_secret(text: str) -> bool:
    from quarterdeck.trust.scan.phrases import books, words_of  # tables that take long to load, and few servers ask
    from quarterdeck.trust.scan.texts import MAX_TEXT_CHARS

    _, words = words_of(text[:MAX_TEXT_CHARS])
    return any(word.text in _SECRETS for word in words) or any(rule == _RULE for rule, *_ in books().spoken.find(words))


_SECRETS: Final = frozenset({"@secret", "@file"})
_RULE: Final = "asks-secrets"


def _url_message(question: Question, said: _Elicitation) -> str | Declined:
    host = host_of(said.url)
    if not host:
        return _refused(INVALID_PARAMS, "only pages at http:// and https:// with a host are shown to people")
    return f"{question.server} asks: open {host}? {_visible(said.message)}"


def host_of(url: str) -> str:
    """The host that a browser would ask, in ASCII; empty for what is no plain address of a page."""
    if not url.isprintable() or " " in url or "\\" in url:
        return ""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port is not None else ""
        host = host if host.isascii() else host.encode("idna").decode("ascii")
    except (ValueError, UnicodeError):
        return ""
    is_page = parts.scheme in ("http", "https") and 0 < len(host) <= _MAX_HOST_CHARS
    return f"{host}{port}" if is_page else ""


def _visible(text: str) -> str:
    """Remove invisible characters: they could hide whose text it is."""
    from quarterdeck.trust.scan.disguises import hidden_characters

    hidden = set(hidden_characters(text))
    return "".join(sign for place, sign in enumerate(text) if place not in hidden) if hidden else text


def _refused(code: int, message: str) -> Declined:
    return Declined(QuestionEnd(code=code, message=message))


def _fault(server: str, why: str, code: str) -> ProtocolFault:
    fault = ProtocolFault(FaultKind.TOOL_ERROR, why, code=code, delivery=Delivery.ANSWERED)
    fault.server = server
    return fault
