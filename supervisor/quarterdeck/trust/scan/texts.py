"""Gather the texts of a definition that a model may read, and say where each stands.  Pure, total, bounded."""

import re
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

MAX_TEXTS: Final = 2_000
"""Of one definition; the largest honest tools have a few hundred."""

MAX_TEXT_CHARS: Final = 65_536
"""Of one text; the longest honest descriptions have a few thousand."""

MAX_TOTAL_CHARS: Final = 262_144
"""Of all texts of one definition: bounds a scan's time."""

_PLAIN_NAMES: Final = frozenset(
    """
    $anchor $comment $defs $id $ref $schema additionalItems additionalProperties allOf annotations anyOf arguments
    audience completions const contains contentEncoding contentMediaType default definitions dependencies
    dependentRequired dependentSchemas deprecated description destructiveHint else enum examples exclusiveMaximum
    exclusiveMinimum execution format icons idempotentHint if inputSchema items lastModified logging maxContains
    maxItems maxLength maxProperties maximum mimeType minContains minItems minLength minProperties minimum multipleOf
    name not oneOf openWorldHint outputSchema pattern patternProperties prefixItems priority prompts properties
    propertyNames readOnly readOnlyHint required resources sizes src taskSupport then title tools type
    unevaluatedItems unevaluatedProperties uniqueItems uri uriTemplate writeOnly _meta
    """.split()  # noqa: SIM905 - as words they are read, as a list they are not
)

_IMAGE: Final = re.compile(r"data:image/[\w.+-]{1,40};base64,[A-Za-z0-9+/]*={0,2}")
"""An image in place: no words, as long as nothing else is."""


_TO_ARGUMENT: Final = 3
"""Steps to the name of a prompt's argument: `arguments`, its place, `name`."""

_DESCRIBING: Final = frozenset({"description", "title", "default", "examples"})
"""Members of a parameter that say what it is for."""


class Step(NamedTuple):
    """A step into a document, and those before it: paths are only built for what is told."""

    before: "Step | None"
    step: str | int


class Text(NamedTuple):
    """One text, or the name of a member, and where it is: for a name, that member."""

    step: Step | None
    text: str
    is_name: bool = False

    @property
    def is_of_parameter(self) -> bool:
        """Whether it describes a parameter, or is one's name; those of a prompt are listed."""
        steps = self.path
        if steps[:1] == ("arguments",):
            return steps[-1] in _DESCRIBING or self.names_argument
        return "properties" in steps and (self.is_name or steps[-1] in _DESCRIBING)

    @property
    def names_argument(self) -> bool:
        """Whether it is the name of a prompt's argument."""
        return len(steps := self.path) == _TO_ARGUMENT and (steps[0], steps[-1]) == ("arguments", "name")

    @property
    def path(self) -> tuple[str | int, ...]:
        """The steps from the document's root."""
        path: list[str | int] = []
        step = self.step
        while step is not None:
            path.append(step.step)
            step = step.before
        return tuple(reversed(path))


class Texts(NamedTuple):
    """What there is to read; `beyond` is the first text that is too much, None when all is there."""

    texts: tuple[Text, ...]
    beyond: Text | None


def texts_of(document: object) -> Texts:
    """The texts of a JSON value, the outer ones first, each once; what is beyond the bounds is left out."""
    texts: list[Text] = []
    told: set[tuple[str, bool]] = set()
    beyond: Text | None = None
    total = 0
    for text in _walk(document):
        if (text.text, text.is_name) in told:
            continue
        room = min(MAX_TEXT_CHARS, MAX_TOTAL_CHARS - total)
        if len(texts) >= MAX_TEXTS or room <= 0:
            return Texts(tuple(texts), beyond or text)
        told.add((text.text, text.is_name))
        if len(text.text) > room:
            beyond = beyond or text
        texts.append(text._replace(text=text.text[:room]))
        total += len(texts[-1].text)
    return Texts(tuple(texts), beyond)


def _walk(document: object) -> Iterator[Text]:
    pending: deque[tuple[object, Step | None]] = deque([(document, None)])
    while pending:
        value, step = pending.popleft()
        if isinstance(value, str):
            if value and not _is_picture(value):
                yield Text(step, value)
        elif isinstance(value, dict):
            for name, member in value.items():
                inner = Step(step, name)
                if name and name not in _PLAIN_NAMES:
                    yield Text(inner, name, is_name=True)
                pending.append((member, inner))
        elif isinstance(value, list):
            pending.extend((member, Step(step, index)) for index, member in enumerate(value))


def _is_picture(text: str) -> bool:
    return text.startswith("data:image/") and _IMAGE.fullmatch(text) is not None
