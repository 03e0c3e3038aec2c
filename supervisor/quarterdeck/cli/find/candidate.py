"""The server that `add` adds: a row made of a command line, a URL or a registry's entry, with its values."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import urlsplit

import click
import msgspec

from quarterdeck.cli.exits import UsageError, as_command_error
from quarterdeck.cli.output import type_secret
from quarterdeck.cli.run.sandbox_options import SandboxWish
from quarterdeck.common.words import clipped, flat
from quarterdeck.config.secrets.store import SecretError, SecretStore
from quarterdeck.registry.offers import Offer, OfferKind, Wanted, id_of
from quarterdeck.registry.server_json import Entry
from quarterdeck.seals.request import runner_of
from quarterdeck_protocol.names import to_server_id

URL: Final = re.compile(r"https?://", re.IGNORECASE)

_SECRET_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A server that may be added.

    Attributes:
        title: its name, if the row alone does not say it.
        notes: facts for the user's decision.
        typed: typed secrets, by the names in the row; stored with the row.
        paths: words of the row that a user wrote, and that may be paths: the sandbox shows those that exist.
    """

    server: str
    row: Mapping[str, object]
    title: str = ""
    notes: tuple[str, ...] = ()
    typed: Mapping[str, str] = field(default_factory=dict, repr=False)
    paths: tuple[str, ...] = ()

    def lookup(self, name: str) -> str:
        """Return the secret that was typed just now or stored before, or raise SecretError."""
        return self.typed[name] if name in self.typed else SecretStore().get(name)


@dataclass(frozen=True, slots=True)
class Said:
    """The options of `add`; `values` are for a registry's entry, `server` is empty for an id made from the name."""

    wish: SandboxWish
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    server: str = ""


def from_words(words: Sequence[str], said: Said) -> Candidate | None:
    """Return the server of a command line or URL, None for a registry's name; raise CommandError for other words."""
    if len(words) == 1 and not URL.match(words[0]):
        return None
    if URL.match(words[-1]) and len(words) <= 2:
        server = _id(said.server or (words[0] if len(words) == 2 else _name_of_host(words[-1])))
        _refuse_sandbox(said.wish)
        return Candidate(server, {"url": words[-1], **({"headers": dict(said.headers)} if said.headers else {})})
    if said.headers:
        raise UsageError("--header is for remote servers", "leave it out, or give a URL")
    is_nameless = runner_of(words[0], words[1:]) is not None and shutil.which(words[1]) is None
    if words[1].startswith("-") or (is_nameless and not os.path.exists(words[1])):
        raise UsageError("a command needs a name before it", f"quarterdeck add NAME -- {shlex.join(words)}")
    command, *args = [_absolute(word) for word in words[1:]]
    row = with_wish({"command": command, "args": args}, said.wish)
    return Candidate(_id(said.server or words[0]), row, paths=(command, *args))


def _refuse_sandbox(wish: SandboxWish) -> None:
    if wish != SandboxWish():
        raise UsageError(
            "a remote server has no process here: neither a sandbox nor an environment", "give --header alone"
        )


def with_wish(row: Mapping[str, object], wish: SandboxWish) -> dict[str, object]:
    """Return a stdio row with the sandbox options applied."""
    changed = dict(row)
    if wish.env:
        given = changed.get("env")
        changed["env"] = {**(given if isinstance(given, dict) else {}), **wish.env}
    if wish.inherit_env:
        changed["inherit_env"] = list(wish.inherit_env)
    if sandbox := msgspec.json.decode(wish.sandbox):
        changed["sandbox"] = sandbox
    return changed


def from_entry(entry: Entry, offer: Offer, said: Said) -> Candidate:
    """Return the server of a registry's entry by one of its offers, asking for missing values.

    Raise CommandError if a value is missing and there is no terminal, or if it is not one of the choices.
    """
    name = entry.server.name
    with as_command_error(ValueError, remedy="choose its id: --id NAME", what=f"no id can be made of {name}: "):
        server = _id(said.server) if said.server else id_of(name)
    filled, typed = _values(server, offer.wanted, said)
    with as_command_error(ValueError, remedy="choose another of its offers: --as KIND", what=f"{name}: "):
        row = offer.row(filled)
    if offer.kind is OfferKind.REMOTE:
        _refuse_sandbox(replace(said.wish, env={}))  # what it names are values of the entry
    else:
        names = {each.name for each in offer.wanted}
        rest = {key: value for key, value in said.wish.env.items() if key not in names}
        row = with_wish(row, replace(said.wish, env=rest))
    return Candidate(
        server,
        {**row, "registry": name},
        f"{name} {flat(clipped(entry.server.version, 64))} ({flat(clipped(offer.title, 200))})",
        _notes(entry, offer, filled),
        typed,
        tuple(os.path.abspath(os.path.expanduser(value)) for value in said.values.values()),
    )


def _notes(entry: Entry, offer: Offer, filled: Mapping[str, str]) -> tuple[str, ...]:
    notes = []
    if entry.status != "active":
        notes.append(f"the registry says that it is {flat(clipped(entry.status, 40))}")
    if offer.told:
        notes.append(f"its entry tells the package runner: {flat(clipped(' '.join(offer.told), 200))}")
    left = [each for each in offer.wanted if each.name not in filled and each.default is None]
    if left:
        notes.append(f"it also takes {', '.join(flat(each.name) for each in left)}: --set NAME=VALUE")
    return tuple(notes)


def _values(server: str, wanted: Sequence[Wanted], said: Said) -> tuple[dict[str, str], dict[str, str]]:
    """Return the values for the row, secrets as references; and the typed secrets by name."""
    with as_command_error(SecretError, remedy="unlock the keyring, or correct that file"):
        stored = {each.name for each in SecretStore().kept() if not each.client}
    given = {**said.wish.env, **said.headers, **said.values}
    filled: dict[str, str] = {}
    typed: dict[str, str] = {}
    missing: list[Wanted] = []
    known = {each.name for each in wanted}
    for each in wanted:
        secret = _SECRET_NAME.sub("_", each.name)[:64].lstrip("-") or "secret"
        value = given.get(each.name)
        if value is None and each.is_secret and secret in stored:
            value = f"${{keyring:{secret}}}"
        if value is None and each.is_required and sys.stdin.isatty():
            value = _ask(server, each)
        if value is None:
            missing += [each] if each.is_required else []
            continue
        if each.choices and "${" not in value and value not in each.choices:
            choices = ", ".join(flat(clipped(choice, 40)) for choice in each.choices[:20])
            raise UsageError(f"{flat(each.name)}: {value!r} is none of its values", f"one of {choices}")
        if each.is_secret and "${" not in value:
            typed[secret] = value
            value = f"${{keyring:{secret}}}"
        filled[each.name] = value
    if unknown := [name for name in said.values if name not in known]:
        raise UsageError(
            f"{server} takes no {unknown[0]!r}", f"it takes {', '.join(sorted(map(flat, known))) or 'nothing'}"
        )
    if missing:
        abouts = (f" ({flat(clipped(each.description, 120))})" if each.description else "" for each in missing)
        told = "; ".join(flat(each.name) + about for each, about in zip(missing, abouts, strict=True))
        raise UsageError(f"{server} needs {told}", _how(missing))
    return filled, typed


def _how(missing: Sequence[Wanted]) -> str:
    secrets = [f"quarterdeck secret set {_SECRET_NAME.sub('_', each.name)}" for each in missing if each.is_secret]
    plain = [f"--set {flat(each.name)}={flat(each.placeholder) or 'VALUE'}" for each in missing if not each.is_secret]
    steps = [*secrets, *([f"add {' '.join(plain)}"] if plain else [])]
    return f"{', '.join(steps)}; then run the command again"


def _ask(server: str, wanted: Wanted) -> str:
    about = f" ({flat(clipped(wanted.description, 200))})" if wanted.description else ""
    question = f"{server} needs {flat(wanted.name)}{about}"
    if not wanted.is_secret:
        return str(click.prompt(question, err=True))
    return type_secret(f"{question}; it is not shown, and kept in your keyring: ", _how([wanted]))


def _id(name: str) -> str:
    with as_command_error(ValueError, remedy="choose its id: letters, digits, - and _: --id NAME"):
        return to_server_id(name)


_PLAIN_HOSTS: Final = frozenset({"mcp", "www", "api", "localhost"})


def _name_of_host(url: str) -> str:
    """Return a name for a server from its address: `https://mcp.example.com/mcp` is `example`."""
    with as_command_error(ValueError, remedy="for example https://example.com/mcp", what="the URL is wrong: "):
        host = urlsplit(url).hostname or ""
    if not host:
        raise UsageError(f"{url!r} names no host", "for example https://example.com/mcp")
    if re.fullmatch(r"[\d.]+|.*:.*", host):
        return "remote"
    labels = [each for each in host.split(".") if each not in _PLAIN_HOSTS]
    return labels[-2] if len(labels) > 1 else labels[0] if labels else "remote"


def _absolute(word: str) -> str:
    """Return the absolute path of a file here, as the server runs in a folder of its own; other words unchanged."""
    is_path = os.sep in word or word in (".", "..") or os.path.isfile(word)
    is_here = not word.startswith("-") and is_path and os.path.exists(word)
    return os.path.abspath(word) if is_here and (os.sep in word or not shutil.which(word)) else word
