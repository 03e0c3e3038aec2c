"""Which values of a configuration look like secrets, and a text of it in which none can be read.  Pure.

A guess, made to warn people and to keep screens clean; nothing relies on it to keep a secret.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from quarterdeck.config.clients.jsonc import COMMENT, STRING
from quarterdeck.config.masking import MASK, is_secretive

_VALUE: Final = re.compile(
    r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16}|\bgh[opsur]_\w{16}|\bgithub_pat_|\bglpat-|\bxox[abeprs]-|\bAKIA[0-9A-Z]{12}|"
    r"\bAIza[\w-]{20}|\bhf_\w{16}|\bnpm_\w{16}|\bntn_\w{16}|\beyJ[\w-]{8,}\.|-----BEGIN |\b(?:Bearer|Basic) [^\s$]{8}|"
    r"://[^/\s@]+@|[?&][\w-]*(?:key|token|secret|password)=[^&\s$]",
    re.IGNORECASE,
)
"""What the tokens of well-known services begin with, and what URLs give away."""

_REFERENCE: Final = re.compile(r"(?:[A-Za-z]+ )?(?:\$\{[^}]*\})+")

_HARMLESS: Final = re.compile(r"\d{0,8}|true|false|null|none|yes|no", re.IGNORECASE)

_SHELVES: Final = frozenset({"env", "environment", "headers", "http_headers"})
"""Objects of a row whose values are nobody's business."""

_OURS: Final = "QUARTERDECK_"
"""Variables of ours name directories and levels."""

_FLAG: Final = re.compile(r"--?([\w-]+)")

_ASSIGNMENT: Final = re.compile(r"(?:--?)?([\w-]+)=(.*)", re.DOTALL)

_LINE: Final = re.compile(r"[^\r\n]+")

_COLON: Final = re.compile(r"\s*:")

_TOKENS: Final = re.compile(
    f'(?P<string>{STRING})|(?P<comment>{COMMENT})|(?P<mark>[{{}}\\[\\],:])|(?P<plain>[^\\s{{}}\\[\\],:"/]+)', re.DOTALL
)


def looks_secret(name: str, value: object) -> bool:
    """Whether `value`, found under `name`, looks like a literal secret; a reference to one is none."""
    if not isinstance(value, str) or _HARMLESS.fullmatch(value) or _REFERENCE.fullmatch(value):
        return False
    return bool(is_secretive(name) or _VALUE.search(value))


def literal_secrets(row: Mapping[str, object]) -> Iterator[str]:
    """Where in a server's row there are values that look like secrets: `env.API_KEY`, `args.2`, `url`."""
    for shelf, values in row.items():
        if isinstance(values, dict) and shelf in _SHELVES:
            yield from (f"{shelf}.{name}" for name, value in values.items() if looks_secret(str(name), value))
        elif isinstance(values, list) and shelf == "args":
            flag = ""
            for place, value in enumerate(values):
                if looks_secret(flag, value) or _assigns_secret(value):
                    yield f"{shelf}.{place}"
                flag = _name_of_flag(value)
        elif looks_secret("", values):
            yield shelf


def mask(text: str) -> str:
    """A JSON text, comments allowed, with every value hidden that is or may be a secret; its lines stay its lines."""
    parts: list[str] = []
    end = 0
    reader = _Reader()
    for token in _TOKENS.finditer(text):
        parts += (text[end : token.start()], reader.shown(token, text))
        end = token.end()
    return "".join((*parts, text[end:]))


class _Reader:
    """Follows the tokens of a text, so that each value is known with the names that lead to it."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._name = ""
        self._flag = ""

    def shown(self, token: re.Match[str], text: str) -> str:
        """The token as it may be seen."""
        match token.lastgroup:
            case "mark":
                self._mark(token[0])
                return token[0]
            case "comment":
                return _without_words(token[0]) if _is_telling(token[0]) else token[0]
            case "string" if _is_key(text, token.end()):
                self._name = _read(token[0])
                return token[0]
            case _:
                is_string = token[0].startswith('"')
                hides = self._hides(_read(token[0]) if is_string else token[0])
                return (f'"{MASK}"' if is_string else MASK) if hides else token[0]

    def _mark(self, mark: str) -> None:
        if mark in "{[":
            self._names.append(self._name)
        elif mark in "}]" and self._names:
            self._names.pop()
        self._name, self._flag = ("", "") if mark in "{[]}" else (self._name if mark == ":" else "", self._flag)

    def _hides(self, value: str) -> bool:
        flag, self._flag = self._flag, _name_of_flag(value)
        if _REFERENCE.fullmatch(value):
            return False
        if any(name in _SHELVES for name in self._names):
            return not self._name.startswith(_OURS)
        return looks_secret(self._name or flag, value) or _assigns_secret(value)


def _name_of_flag(value: object) -> str:
    found = _FLAG.fullmatch(value) if isinstance(value, str) else None
    return found[1] if found else ""


def _assigns_secret(value: object) -> bool:
    found = _ASSIGNMENT.fullmatch(value) if isinstance(value, str) else None
    return bool(found and looks_secret(found[1], found[2]))


def _is_telling(comment: str) -> bool:
    return bool(is_secretive(comment) or _VALUE.search(comment) or '":' in comment)


def _without_words(comment: str) -> str:
    body = comment[2:].removesuffix("*/")
    return f"{comment[:2]}{_LINE.sub(f' {MASK} ', body)}{comment[2 + len(body) :]}".rstrip(" ")


def _is_key(text: str, at: int) -> bool:
    return _COLON.match(text, at) is not None


def _read(token: str) -> str:
    try:
        value: object = json.loads(token, strict=False)
    except ValueError:
        return token
    return value if isinstance(value, str) else token
