"""Mask secrets in rows and texts of a configuration, and list the secrets that a server is given.

A reference such as `${TOKEN}` stays, since it is no secret itself; the text around it does not.  The masked text of
another client's file is a guess, made to keep screens clean: nothing relies on it to keep a secret.  Pure.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from quarterdeck.config.load.document import DocumentError
from quarterdeck.config.load.jsonc import comments, scalars
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig
from quarterdeck_protocol.secrets import (
    hide_args,
    hide_text,
    hide_whole,
    holds_secret,
    is_path,
    is_secret_name,
    secret_values,
    secrets_in,
    secrets_in_args,
)

MASK: Final = "••••"
"""Stands for a secret, whatever its length."""

_CONFIDENTIAL: Final = frozenset({"env", "environment", "envs", "headers", "http_headers"})
"""Objects of a row whose values are not shown."""

_OURS: Final = "QUARTERDECK_"
"""Our variables name directories and levels."""

_ROOTS: Final = ("/", "~/", "./", "../")
"""The beginning of a value that is shown as a path: a relative path without a dot may be any word."""

_FLAG: Final = re.compile(r"--?[\w-]+")
_REFERENCES: Final = re.compile(r"(?:[A-Za-z]+ )?(?:\$\{[^}]*\})+")
_WORDS: Final = re.compile(r"[\w-]+")
_LINE: Final = re.compile(r"[^\r\n]+")


def secrets_of(config: ServerConfig, environment: Mapping[str, str] | None = None) -> frozenset[str]:
    """Return the secrets in a server's variables, headers, arguments and URLs.

    `config` has its variables resolved; `environment` is the whole environment of its process, by default its `env`
    alone.
    """
    if isinstance(config, StdioServerConfig):
        given = {**(environment or {}), **config.env}
        return frozenset({*secret_values(given), *secrets_in_args((config.command, *config.args))})
    login = filter(None, (config.auth.client_secret,))
    return frozenset({*secret_values(config.headers), *secrets_in(config.url), *secrets_in(config.proxy or ""), *login})


def mask_row(row: Mapping[str, object]) -> dict[str, object]:
    """Return the row with values in `env`, `headers` and `arguments` masked, except paths, and secrets elsewhere."""
    return {key: _mask_member(key, value) for key, value in row.items()}


def mask_value(value: object) -> object:
    """Mask a value that may be a secret: references in a text stay, null is shown."""
    if value is None or value == "":
        return value
    return hide_whole(value, _mask) if isinstance(value, str) else MASK


def is_plain_path(name: str, value: object) -> bool:
    """Return whether a variable's value is a path, and neither its name nor its form suggests a secret."""
    return (
        isinstance(value, str)
        and value.startswith(_ROOTS)
        and "${" not in value  # the default may be a secret
        and is_path(value)
        and not (is_secret_name(name) or holds_secret(name, value))
    )


def mask_args(args: Sequence[object]) -> list[object]:
    """Mask the secrets among arguments; other arguments keep their type."""
    words = [str(argument) for argument in args]
    return [
        shown if isinstance(argument, str) or shown != word else argument
        for argument, word, shown in zip(args, words, hide_args(words, _mask), strict=True)
    ]


def mask_text(text: str) -> str:
    """Mask the secrets in a text."""
    return hide_text(text, _mask)


def _mask(_: str) -> str:
    return MASK


def _mask_member(key: str, value: object) -> object:
    if key in {"env", "headers"} and isinstance(value, Mapping):
        return {
            name: member if key == "env" and is_plain_path(str(name), member) else mask_value(member)
            for name, member in value.items()
        }
    if key in {"env", "headers"}:
        return value if value is None else MASK
    if key == "auth" and isinstance(value, Mapping):
        return {
            name: (mask_value if name == "client_secret" else _mask_inside)(member) for name, member in value.items()
        }
    if key == "arguments" and isinstance(value, Mapping):
        return {tool: _mask_member("env", given) for tool, given in value.items()}
    if key == "args":
        return mask_args(value) if isinstance(value, list) else value if value is None else MASK
    return _mask_inside(value)


def _mask_inside(value: object) -> object:
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, Mapping):
        return {key: _mask_inside(member) for key, member in value.items()}
    return [_mask_inside(member) for member in value] if isinstance(value, list) else value


def looks_secret(name: str, value: object) -> bool:
    """Return whether `value`, found under `name`, looks like a literal secret; a reference is none."""
    return isinstance(value, str) and holds_secret(name, value)


def literal_secrets(row: Mapping[str, object]) -> Iterator[str]:
    """Yield the places in a server's row of values that look like secrets: `env.API_KEY`, `args.2`, `url`."""
    for section, values in row.items():
        if isinstance(values, dict) and section in _CONFIDENTIAL:
            yield from (f"{section}.{name}" for name, value in values.items() if looks_secret(str(name), value))
        elif isinstance(values, list) and section == "args":
            shown = mask_args(values)
            yield from (f"{section}.{place}" for place, value in enumerate(values) if shown[place] != value)
        elif isinstance(values, dict) and section == "auth":
            yield from (f"{section}.{name}" for name in ("client_secret",) if looks_secret(name, values.get(name)))
        elif looks_secret("", values):
            yield section


Scalars = Callable[[str], Iterator[tuple[tuple[str, ...], object, int, int]]]
"""Finds the values of a text: the names that lead to each, itself, its span; see `jsonc.scalars`."""


def mask(
    text: str, find_scalars: Scalars = scalars, find_comments: Callable[[str], Iterator[re.Match[str]]] = comments
) -> str:
    """Hide every value of a text that is or may be a secret, line by line; all of it if it cannot be parsed.

    `find_scalars` and `find_comments` are those of its format; by default JSON with comments.
    """
    try:
        found = list(find_scalars(text))
    except DocumentError:
        return _LINE.sub(MASK, text)
    hidden = [
        (comment.start(), comment.end(), _without_words(comment[0]))
        for comment in find_comments(text)
        if '":' in comment[0] or secrets_in(comment[0]) or any(map(is_secret_name, _WORDS.findall(comment[0])))
    ]
    before: tuple[tuple[str, ...], str] = ((), "")
    for names, value, start, end in found:
        word = value if isinstance(value, str) else text[start:end]
        flag = before[1] if before[0] == names and _FLAG.fullmatch(before[1]) else ""
        if _is_hidden(names, flag, word):
            hidden.append((start, end, f'"{MASK}"' if isinstance(value, str) else MASK))
        before = names, word
    parts, at = list[str](), 0
    for start, end, shown in sorted(hidden):
        parts += (text[at:start], shown)
        at = end
    return "".join((*parts, text[at:]))


def _is_hidden(names: tuple[str, ...], flag: str, word: str) -> bool:
    *above, name = names
    if _REFERENCES.fullmatch(word):
        return False
    if not _CONFIDENTIAL.isdisjoint(above):
        return not (name.startswith(_OURS) or is_plain_path(name, word))
    if name or not flag:
        return looks_secret(name, word) or mask_args([word]) != [word]
    return mask_args([flag, word]) != [flag, word]


def _without_words(comment: str) -> str:
    size = 1 if comment.startswith("#") else 2
    body = comment[size:].removesuffix("*/")
    return f"{comment[:size]}{_LINE.sub(f' {MASK} ', body)}{comment[size + len(body) :]}".rstrip(" ")
