"""Find the owner of a resource's URI among independent servers. Pure.

URIs stay as servers write them, since they occur in results, too. If two servers list the same one, the first in
configuration order has it; the other's is called `quarterdeck+SERVER:URI`. An unlisted URI belongs to the server with a
matching template, or one that has linked to it in a result, or the only one of its scheme.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from quarterdeck.common.patterns import escaped

PREFIX: Final = "quarterdeck+"
"""Beginning of the scheme of a URI that names its server."""

_EXPRESSION: Final = re.compile(r"\{[+#./;?&]?([A-Za-z0-9_.%]++)(?:\*|:[0-9]++)?\}")
"""An expression with one variable: completion requests name such variables."""


def prefixed(server: str, uri: str) -> str:
    """Return the URI that names its server, for one that another server has, too."""
    return f"{PREFIX}{server}:{uri}"


def split_prefixed(uri: str) -> tuple[str, str] | None:
    """The server and its own URI in a prefixed one, None for any other."""
    if not uri.startswith(PREFIX):
        return None
    server, found, own = uri[len(PREFIX) :].partition(":")
    return (server, own) if found and server and own else None


def fits(template: str, uri: str) -> bool:
    """Return whether a URI can be an expansion of a URI template (RFC 6570), by the text outside its expressions.
    Linear in both; a broken template fits only its own text.
    """
    literals = _literals(template)
    first, *rest = literals
    if not rest:
        return uri == first
    if not uri.startswith(first):
        return False
    *middle, last = rest
    place, end = len(first), len(uri) - len(last)
    if end < place or not uri.endswith(last):
        return False
    for literal in middle:
        found = uri.find(literal, place, end)
        if found < 0:
            return False
        place = found + len(literal)
    return True


def as_glob(template: str) -> str:
    """Return the pattern that a template's expansions fit, as `fits` judges them."""
    return "*".join(map(escaped, _literals(template)))


def completed_uri(params: bytes) -> str:
    """Return the template of a `completion/complete`, with the values that the client has filled in so far.

    Raise msgspec.DecodeError if the params do not belong to a completion.
    """
    completion = _completions.decode(params)
    values = {**completion.context.arguments, completion.argument.name: completion.argument.value}
    return _EXPRESSION.sub(lambda found: values.get(found[1], found[0]), completion.ref.uri)


def scheme_of(uri: str) -> str:
    """Return the scheme in lower case, or an empty string."""
    scheme, found, _ = uri.partition(":")
    return scheme.lower() if found else ""


def has_scheme(template: str) -> bool:
    """Whether a template says which scheme it expands to: one that does not fits anybody's URIs."""
    return ":" in _literals(template)[0]


def _literals(template: str) -> Sequence[str]:
    """Return the text outside the expressions: one part more than there are expressions."""
    literals, place = [], 0
    while (opens := template.find("{", place)) >= 0:
        closes = template.find("}", opens)
        if closes < 0:
            break
        literals.append(template[place:opens])
        place = closes + 1
    literals.append(template[place:])
    return literals


class _Reference(msgspec.Struct):
    uri: str = ""


class _Argument(msgspec.Struct):
    name: str = ""
    value: str = ""


class _Context(msgspec.Struct):
    arguments: dict[str, str] = {}


class _Completion(msgspec.Struct):
    ref: _Reference
    argument: _Argument = msgspec.field(default_factory=_Argument)
    context: _Context = msgspec.field(default_factory=_Context)


_completions: Final = msgspec.json.Decoder(_Completion)
