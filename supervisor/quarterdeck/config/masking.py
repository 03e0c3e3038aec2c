"""A row as it is written, without the secrets that are written into it.

A reference such as `${TOKEN}` stays, since it is no secret itself; what stands around it does not.  Pure.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

MASK: Final = "••••"
"""Stands for a secret, whatever its length."""

_REFERENCE: Final = re.compile(r"\$\{([^}]*)(\}?)")
_SECRETIVE: Final = re.compile(
    r"token|secret|passw|pwd|credential|api[-_]?key|access[-_]?key|private[-_]?key|auth(?!or)|bearer", re.IGNORECASE
)
_OPTION: Final = re.compile(r"(--?[A-Za-z0-9][\w.-]*|[A-Za-z_]\w*)(?:=(.*))?", re.DOTALL)
_USER: Final = re.compile(r"(?<=://)([^/?#\s]*)@")
_QUERY: Final = re.compile(r"\?([^#]*)")


def mask_row(row: Mapping[str, object]) -> dict[str, object]:
    """The row with the values in `env` and `headers`, and the credentials in `url`, masked."""
    return {key: _mask_member(key, value) for key, value in row.items()}


def mask_value(value: object) -> object:
    """A value that may be a secret: of a text its references remain, null is shown, all else is masked."""
    if value is None or value == "":
        return value
    if not isinstance(value, str):
        return MASK
    shown, end = "", 0
    for match in _REFERENCE.finditer(value):
        if not match[2]:
            break
        shown += (MASK if match.start() > end else "") + _without_default(match[1])
        end = match.end()
    return shown + (MASK if end < len(value) else "")


def mask_args(args: Sequence[object]) -> list[object]:
    """Arguments with the values of options that sound secret masked: `--token=x`, `--api-key x`, `PASSWORD=x`."""
    shown: list[object] = []
    is_value = False
    for argument in args:
        option = _OPTION.fullmatch(argument) if isinstance(argument, str) else None
        if is_value and not (option is not None and option[0].startswith("-")):
            shown.append(mask_value(argument))
            is_value = False
            continue
        is_secretive = option is not None and _SECRETIVE.search(option[1]) is not None
        is_value = is_secretive and option is not None and option[2] is None and option[0].startswith("-")
        if is_secretive and option is not None and option[2] is not None:
            shown.append(f"{option[1]}={mask_value(option[2])}")
        else:
            shown.append(mask_url(argument) if isinstance(argument, str) else argument)
    return shown


def mask_url(text: str) -> str:
    """A URL without the user and password in it, and without the values in its query; other texts are unchanged."""
    text = _USER.sub(lambda found: f"{mask_value(found[1])}@", text)
    if "://" not in text:
        return text
    return _QUERY.sub(lambda found: "?" + "&".join(map(_mask_pair, found[1].split("&"))), text, count=1)


def is_secretive(name: str) -> bool:
    """Whether a variable of this name probably holds a secret."""
    return _SECRETIVE.search(name) is not None


def _mask_member(key: str, value: object) -> object:
    if key in {"env", "headers"} and isinstance(value, Mapping):
        return {name: mask_value(member) for name, member in value.items()}
    if key in {"env", "headers"}:
        return value if value is None else MASK
    return mask_url(value) if key == "url" and isinstance(value, str) else value


def _without_default(body: str) -> str:
    name, has_default, default = body.partition(":-")
    return f"${{{name}:-{MASK}}}" if has_default and default else f"${{{body}}}"


def _mask_pair(pair: str) -> str:
    name, equals, value = pair.partition("=")
    return f"{name}={mask_value(value)}" if equals else pair
