"""Take known secrets out of texts: the values that a configuration put in for variables, whole and respelt.  Pure.

What a name calls secret is taken out always; any other value unless it is what messages are full of anyway (a path, a
word, a number, a host).
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final
from urllib.parse import quote, quote_plus

from .recognise import SCHEME, is_ordinary, secrets_in
from .tokens import WORKING_DIRECTORY, is_absolute_path, is_secret_name

REDACTED: Final = "[redacted]"

SHORTEST: Final = 4
"""Shorter values would blot out ordinary words."""

_WHOLE_WORD_CHARS: Final = 8
"""Shorter ones are taken out only where they are words of their own."""

_LINE_CHARS: Final = 16
"""Of a secret of several lines, lines of that length are taken out by themselves, too."""

_HARMLESS: Final = frozenset({"true", "false", "null", "none", "default", "auto", "test", "basic", "bearer"})


class Redactor:
    """Replace known secrets; those too short or too common to be told from a word are left alone."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = tuple(secrets)

    @cached_property
    def _pattern(self) -> re.Pattern[bytes] | None:
        """Build the pattern for the first text: most servers never write one."""
        spellings = {spelling for secret in self._secrets for spelling in _spellings(secret)}
        # The longest first: a part of one may be another.
        patterns = [_pattern(each) for each in sorted(spellings, key=lambda each: (-len(each), each))]
        return re.compile(b"|".join(patterns)) if patterns else None

    def clean(self, text: bytes) -> bytes:
        """`text` without them."""
        return self._pattern.sub(REDACTED.encode(), text) if self._pattern else text

    def clean_text(self, text: str) -> str:
        """`text` without them; what UTF-8 cannot say is escaped."""
        return self.clean(text.encode("utf-8", "backslashreplace")).decode("utf-8", "replace")


def secret_values(values: Mapping[str, str]) -> Iterator[str]:
    """Of named values those that must not be shown, and the secrets within them."""
    for name, value in values.items():
        is_directory = name == WORKING_DIRECTORY and is_absolute_path(value)
        if not is_directory and (is_secret_name(name) or not is_ordinary(value)):
            yield value
            yield from secrets_in(value)


def _spellings(secret: str) -> Iterator[str]:
    """Return a secret as it is, and as URLs, JSON and headers write it."""
    secret = secret.strip()
    if len(secret) < SHORTEST or secret.lower() in _HARMLESS:
        return
    yield secret
    if (scheme := SCHEME.match(secret)) is not None:
        yield from _spellings(secret[scheme.end() :])
    raw = secret.encode("utf-8", "surrogatepass")
    yield from (quote(raw, safe=""), quote_plus(raw), quote(raw))
    yield from (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1])
    if len(secret) >= _WHOLE_WORD_CHARS:
        yield base64.b64encode(raw).decode().rstrip("=")
    if "\n" in secret:
        yield from (line.strip() for line in secret.splitlines() if len(line.strip()) >= _LINE_CHARS)


def _pattern(spelling: str) -> bytes:
    pattern = re.escape(spelling.encode("utf-8", "surrogatepass"))
    if len(spelling) >= _WHOLE_WORD_CHARS:
        return pattern
    return rb"(?<![A-Za-z0-9_])" + pattern + rb"(?![A-Za-z0-9_])"
