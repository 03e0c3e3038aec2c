"""The rows that a registry's entry amounts to: one for each package or address, with the values a user has to give.
Pure.

Texts of the registry are untrusted: a row takes its fixed values as plain text, so that they can name none of the
user's variables, files or secrets; and the command line must start the package that the entry names, in its version.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from quarterdeck.config.web_policy import refusal
from quarterdeck.seals.request import NPM_NAME, PYPI_NAME, VERSION, pin_of, pinned
from quarterdeck.tools.web.urls import literal_address
from quarterdeck_protocol.names import to_server_id
from quarterdeck_sandbox import own_addresses

from .allowed import QUIET, command_problem, own_words, runner_problem, variable_problem
from .server_json import STDIO, ArgumentInput, Input, NamedInput, Package, Server, Transport

_VARIABLE: Final = re.compile(r"\{([A-Za-z0-9_.-]{1,64})\}")
_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_PLAIN_HOST: Final = re.compile(r"https?://[A-Za-z0-9_.:@\[\]-]+(?:[/?#]|$)")
"""A URL with an ASCII host that contains no variable, and that every parser finds at the same position."""

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
NEAR: Final = "its address is of this machine or its networks, which no registry has a say in"
NEAR_REMEDY: Final = "if you know that server, add it by its URL: quarterdeck add NAME URL"

_GENERIC: Final = frozenset({"mcp", "server", "mcp-server", "cli"})
"""Common names of servers within their namespace."""


class OfferKind(StrEnum):
    """What runs, or where."""

    NPM = "npm"
    PYPI = "pypi"
    REMOTE = "remote"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A value that a user may give, and has to if `is_required`: the registry has none for it.

    `name` is its name on the command line, `default` its value otherwise; None for none.
    """

    name: str
    description: str = ""
    is_required: bool = False
    is_secret: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()
    placeholder: str = ""


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to get a server: its row, once the wanted values are there.

    Attributes:
        title: what runs, in words.
        wanted: each once, in the order of the entry.
        told: the registry's words for the runner besides the package, for the user to check.
        row: returns the row with values, which may hold references such as `${keyring:NAME}`; raises `ValueError` if
            its command line does not start the package that the entry names.
    """

    kind: OfferKind
    title: str
    wanted: tuple[Wanted, ...]
    told: tuple[str, ...]
    row: Callable[[Mapping[str, str]], dict[str, object]]


@dataclass(frozen=True, slots=True)
class Unusable:
    """A package or an address that cannot be used, why, and what to do."""

    title: str
    reason: str
    remedy: str = "tell its publisher, or look for another server"


def offers_of(server: Server, programs: Collection[str]) -> list[Offer | Unusable]:
    """Return every way to get the server: packages first, since they can be confined.

    `programs` are those of `RUNNERS` on this machine.
    """
    return [
        *(_of_package(server.name, package, programs) for package in server.packages),
        *map(_of_remote, server.remotes),
    ]


RUNNERS: Final = ("npx", "uvx", "pipx")


def id_of(name: str) -> str:
    """Return the server's id: the last part of its registry name, with its namespace if that alone is generic.  Raises
    `ValueError` if no id can be made of it.
    """
    space, _, last = name.rpartition("/")
    return to_server_id(f"{space.rpartition('.')[2]}-{last}" if last.lower() in _GENERIC else last)


def _of_package(server: str, package: Package, programs: Collection[str]) -> Offer | Unusable:
    version = package.version
    title = f"{package.registry_type} {package.identifier} {version}".strip()
    if (refused := _refused(title, package, own_words(server, package.identifier))) is not None:
        return refused
    kind = OfferKind(package.registry_type)
    choices: tuple[tuple[str, ...], ...] = (("npx", "-y"),) if kind is OfferKind.NPM else (("uvx",), ("pipx", "run"))
    if package.runtime_hint == "pipx":
        choices = choices[::-1]
    program = next((words for words in choices if words[0] in programs), None)
    if program is None:
        missing = "npx is not" if kind is OfferKind.NPM else "neither uvx nor pipx is"
        return Unusable(title, f"{missing} on PATH", f"install {'Node.js' if kind is OfferKind.NPM else 'uv'}")
    options = [word for each in package.runtime_arguments for word in (each.name, each.value or "") if word]
    wanted = _wanted(
        (
            *_named(package.runtime_arguments, "runtime-argument"),
            *_named(package.package_arguments),
            *_named(package.environment_variables),
        )
    )
    told = tuple(word for word in options if word not in QUIET)
    return _tried(Offer(kind, title, wanted, told, partial(_local_row, program, package)))


def _tried(offer: Offer) -> Offer | Unusable:
    try:
        offer.row({wanted.name: "${value}" for wanted in offer.wanted if wanted.default is None})
    except ValueError as error:
        return Unusable(offer.title, str(error))
    return offer


def _refused(title: str, package: Package, own: Collection[str]) -> Unusable | None:
    """Return why the entry alone makes a package unusable, and a remedy; None if it is usable.

    `own` has the words of the server's and the package's names.
    """
    match package.registry_type:
        case "npm":
            name, is_name = "npm's", NPM_NAME.fullmatch(package.identifier)
        case "pypi":
            name, is_name = "PyPI's", PYPI_NAME.fullmatch(package.identifier)
        case "oci":
            return Unusable(
                title,
                "it is a container image, and quarterdeck starts programs without a container engine",
                "install the program itself, and add its command: quarterdeck add NAME -- COMMAND …; or run the image "
                "with a container engine, and add its URL where it serves HTTP: quarterdeck add NAME URL",
            )
        case "mcpb":
            return Unusable(
                title,
                "it is a bundle for desktop clients (.mcpb), which quarterdeck does not unpack",
                "unpack it, it is a ZIP archive, and add the command of its manifest.json: "
                "quarterdeck add NAME -- COMMAND …",
            )
        case _:
            return Unusable(
                title,
                "quarterdeck starts packages of npm and PyPI alone",
                "install it, and add its command: quarterdeck add NAME -- COMMAND …",
            )
    if not is_name:
        return Unusable(title, f"its identifier is no name of {name}")
    if package.version and not VERSION.fullmatch(package.version):
        return Unusable(title, "its version is not an exact one")
    if package.transport.type != STDIO:
        return Unusable(
            title, "it serves HTTP, and not stdio", "start it yourself, and add its URL: quarterdeck add NAME URL"
        )
    for each in package.environment_variables:
        if not _VARIABLE_NAME.fullmatch(each.name):
            return Unusable(title, "it names a variable that no environment can have")
        is_given = each.value is None and each.default is None
        if problem := variable_problem(each.name, own, is_given=is_given):
            return Unusable(title, problem)
    return None


def _of_remote(remote: Transport) -> Offer | Unusable:
    title = f"remote {remote.url}"
    if remote.type not in ("streamable-http", "sse"):
        return Unusable(title, "it is reached by a transport that quarterdeck does not speak")
    if not _PLAIN_HOST.match(remote.url):
        return Unusable(title, "its address is no URL of http or https")
    if "@" in remote.url.partition("://")[2].partition("/")[0]:
        return Unusable(title, "its address has a login before the host, which may be taken for the host")
    if is_near(remote.url, lambda *_: ()):
        return Unusable(title, NEAR, NEAR_REMEDY)
    if any(not _HEADER_NAME.fullmatch(each.name) for each in remote.headers):
        return Unusable(title, "it names a header that no request can have")
    variables = ((name, each) for name, each in remote.variables.items() if f"{{{name}}}" in remote.url)
    headers = ((each.name, each) for each in remote.headers)
    return _tried(Offer(OfferKind.REMOTE, title, _wanted((*variables, *headers)), (), partial(_remote_row, remote)))


def is_near(url: str, resolve: Callable[[str, int], Sequence[str]]) -> bool:
    """Return whether a URL of http or https leads to this machine or its networks, and not to the internet.

    `resolve` returns the addresses of a name; none if it has none.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return True  # whoever reads it otherwise may reach anything
    address = literal_address(host)
    addresses = (address,) if address is not None else resolve(host, port)
    own = own_addresses()
    return any(refusal(host, port, each, (), own) is not None for each in addresses)


def _local_row(program: Sequence[str], package: Package, values: Mapping[str, str]) -> dict[str, object]:
    before = [word for word in _words(package.runtime_arguments, values, "runtime-argument") if word not in QUIET]
    if problem := runner_problem(program[0], before):
        raise ValueError(problem)
    before = [*program[1:], *before]
    after = list(_words(package.package_arguments, values))
    # Some entries name the package among the runner's arguments.
    args = [*before, *after] if pin_of(program[0], before) else [*before, package.identifier, *after]
    pin = pin_of(program[0], args)
    if pin is None or pin.place is None or not pin.is_of(package.identifier):
        raise ValueError("its arguments make the runner start something else than the package")
    if problem := command_problem(program[0], args, pin.place, package.identifier):
        raise ValueError(problem)
    if package.version:
        args = pinned(args, pin, package.version)
    env = {each.name: text for each in package.environment_variables if (text := _text(each, each.name, values))}
    return {"command": program[0], "args": args, **({"env": env} if env else {})}


def _remote_row(remote: Transport, values: Mapping[str, str]) -> dict[str, object]:
    url = _joined(_filled(remote.url, remote.variables, values))
    headers = {each.name: text for each in remote.headers if (text := _text(each, each.name, values))}
    kind = "sse" if remote.type == "sse" else "http"
    return {"type": kind, "url": url, "internet_only": True, **({"headers": headers} if headers else {})}


def _words(arguments: Sequence[ArgumentInput], values: Mapping[str, str], called: str = "argument") -> Iterator[str]:
    """Yield the words of a command line; a flag and its value are two, and a flag whose value is empty is one."""
    for (name, _), argument in zip(_named(arguments, called), arguments, strict=True):
        text = _text(argument, name, values)
        if argument.type == "named" and (text is not None or argument.is_required):
            yield literal(argument.name)
        if text:
            yield text


def _named(inputs: Iterable[Input], called: str = "argument") -> Iterator[tuple[str, Input]]:
    """Yield each input with the name of its value; one without a name is `called` and numbered."""
    for place, each in enumerate(inputs, start=1):
        match each:
            case ArgumentInput(name=name, value_hint=hint):
                yield name.lstrip("-") or hint or f"{called}-{place}", each
            case NamedInput(name=name):
                yield name, each


def _wanted(inputs: Iterable[tuple[str, Input]]) -> tuple[Wanted, ...]:
    found: dict[str, Wanted] = {}
    for name, each in inputs:
        asked: list[tuple[str, Input]] = [(name, each)] if each.value is None else []
        if each.value is not None:
            asked = [(key, each.variables[key]) for key in _VARIABLE.findall(each.value) if key in each.variables]
        for key, one in asked:
            if one.value is None:
                is_secret = one.is_secret or (one is not each and each.is_secret)
                is_required = one.is_required or one is not each
                found.setdefault(
                    key,
                    Wanted(
                        key,
                        one.description,
                        is_required and one.default is None,
                        is_secret,
                        one.default,
                        tuple(one.choices or ()),
                        one.placeholder,
                    ),
                )
    return tuple(found.values())


def _text(each: Input, name: str, values: Mapping[str, str]) -> str | None:
    """Return the text of an input; None for nothing.  Raises `ValueError` if it cannot be written."""
    pieces = _pieces(each, name, values)
    return _joined(pieces) if pieces is not None else None


class _Piece(NamedTuple):
    """A part of a text; `is_given`: a user gave it, so that references in it are meant."""

    text: str
    is_given: bool = False


def _pieces(each: Input, name: str, values: Mapping[str, str]) -> list[_Piece] | None:
    if each.value is not None:
        return _filled(each.value, each.variables, values)
    if name in values:
        return [_Piece(values[name], is_given=True)]
    return [_Piece(each.default)] if each.default is not None else None


def _filled(template: str, variables: Mapping[str, Input], values: Mapping[str, str]) -> list[_Piece]:
    """Put variables into a text of the registry's; an unknown variable stays."""
    pieces: list[_Piece] = []
    at = 0
    for found in _VARIABLE.finditer(template):
        if (variable := variables.get(found[1])) is not None:
            pieces.append(_Piece(template[at : found.start()]))
            pieces += _pieces(variable, found[1], values) or ()
            at = found.end()
    return [*pieces, _Piece(template[at:])]


def _joined(pieces: Iterable[_Piece]) -> str:
    """Return the text as a configuration has to hold it.  Raises `ValueError` if a user's part and a stranger's would
    make a reference where they meet.
    """
    text = ""
    for is_given, run in groupby(filter(lambda piece: piece.text, pieces), key=lambda piece: piece.is_given):
        part = "".join(piece.text for piece in run)
        part = part if is_given else literal(part)
        if text.endswith("$") and part.startswith(("{", "${")):
            raise ValueError("it puts a $ before a value, which a configuration cannot say")
        text += part
    return text


def literal(text: str) -> str:
    """Escape a stranger's text, so that a configuration finds no reference in it."""
    return text.replace("${", "$${")
