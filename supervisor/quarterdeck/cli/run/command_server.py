"""The one server of a `quarterdeck run`: its id, by its command line, and what to run.

The id stays the same for as long as the command line means the same server, so that its home, its log and what was
approved of it are found again: a package keeps it from version to version.  It has a name to recognise, of a package or
a program, and six digits of all the words, so that no two servers have one.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Final

from quarterdeck.cli.exits import UsageError, as_command_error
from quarterdeck.common.tool_names import NameBudget
from quarterdeck.config.load.origin import Origin, Standing
from quarterdeck.config.places.trusted_files import trusted_files
from quarterdeck.config.settings import Settings
from quarterdeck.daemon.messages import CommandRequest, ServeRequest
from quarterdeck.seals.request import Unsealable, request_of, runner_of, unversioned
from quarterdeck_protocol.configs import StdioServerConfig, TrustMode
from quarterdeck_protocol.names import MAX_SERVER_ID_CHARS, to_server_id
from quarterdeck_protocol.secrets import secret_values

from .sandbox_options import POLICY_HELP, shown_directory, to_policy

DIGITS: Final = 6
"""Digits of the words' hash: two servers of one name collide once in sixteen million."""

_ENGINES: Final = ("docker", "podman", "nerdctl")

_FLAGS: Final = frozenset(
    """
    -i -t -d -it -ti -dit -P --interactive --tty --detach --rm --init --privileged --read-only --publish-all
    --no-healthcheck --oom-kill-disable --quiet -q --sig-proxy --disable-content-trust
    """.split()  # noqa: SIM905 - as words they are read, as a list they are not
)
"""Options of `docker run` that no value follows."""

_IMAGE: Final = re.compile(r"(?P<name>[^@]+?)(?::[\w.-]{1,128})?(?:@[\w:+.-]+)?")

_INTERPRETER: Final = re.compile(r"(?:python|pypy)[\d.]*|node|bun|deno|ruby|perl|bash|sh")

_GENERIC: Final = frozenset({"mcp", "server", "mcp-server", "cli"})
"""Names that many packages have within their owner's namespace."""

_ASKED_LESS: Final = frozenset({"-y", "--yes", "-q", "--quiet", "--rm"})
"""Words that change nothing about which server it is."""


def server_id(words: Sequence[str], cwd: str | None = None) -> str:
    """Return the id of the server of this command line; `cwd` counts if it says which server it is."""
    command, args = words[0], words[1:]
    name, meant = _package(command, args)
    if not name:
        name, meant = _program(command, args), [*words, cwd or ""]
    said = json.dumps(meant).encode("utf-8", "surrogatepass")
    digits = hashlib.sha256(said).hexdigest()[:DIGITS]
    room = MAX_SERVER_ID_CHARS - DIGITS - 1
    return to_server_id(f"{to_server_id(name)[:room].rstrip('-_')}-{digits}")


def _package(command: str, args: Sequence[str]) -> tuple[str, list[str]]:
    """Return the name of a package or image, and the words that identify the server, without its version."""
    program = PurePath(command).name
    if program in _ENGINES and args[:1] == ["run"]:
        image = _image(args[1:])
        found = _IMAGE.fullmatch(image) if image else None
        if found is None:
            return "", []
        path = found["name"]
        rest = [path if word == image else word for word in args]
        return _short(path), ["image", *_telling(rest)]
    asked = request_of(command, args)
    request = asked.request if isinstance(asked, Unsealable) else asked
    if request is None:
        return "", []
    name = _short(request.name.removeprefix("@"))
    return name, [runner_of(command, args) or "", *_telling(unversioned(args, request))]


def _image(words: Sequence[str]) -> str | None:
    place = 0
    while place < len(words):
        word = words[place]
        if not word.startswith("-"):
            return word
        place += 1 if "=" in word or word in _FLAGS else 2
    return None


def _telling(words: Sequence[str]) -> list[str]:
    return [word for word in words if word not in _ASKED_LESS]


def _short(path: str) -> str:
    parts = path.split("/")
    return "-".join(parts[-2:]) if parts[-1].lower() in _GENERIC else parts[-1]


def _program(command: str, args: Sequence[str]) -> str:
    """Return a program's name; for an interpreter that of its script or module."""
    program = PurePath(command).name
    if _INTERPRETER.fullmatch(program):
        if "-m" in args[:-1]:
            return args[args.index("-m") + 1]
        script = next((word for word in args if not word.startswith("-")), None)
        if script:
            return PurePath(script).stem
    return program


def command_settings(asked: CommandRequest, request: ServeRequest, environ: Mapping[str, str]) -> Settings:
    """Return the settings of a `run`, or raise CommandError if an option is wrong."""
    from pydantic import ValidationError

    policy = to_policy(asked.sandbox)
    if asked.trust not in tuple(TrustMode):
        raise UsageError(f"--trust {asked.trust}: there is no such mode", f"the modes are {', '.join(TrustMode)}")
    cwd = shown_directory(policy, request.cwd)
    server = server_id(asked.words, cwd)
    with as_command_error(ValidationError, remedy=POLICY_HELP, what="the command cannot be run: "):
        config = StdioServerConfig(
            id=server,
            command=asked.words[0],
            args=asked.words[1:],
            env=asked.env,
            inherit_env=asked.inherit_env,
            cwd=cwd,
            sandbox=policy,
            trust=TrustMode(asked.trust),
        )
    inherited = {name: environ[name] for name in asked.inherit_env if name in environ}
    secrets = frozenset(secret_values(inherited))
    return Settings(
        servers=(config,),
        command=server,
        origins={server: Origin(None, "", Standing.COMMAND, {}, expanded=secrets)},
        trusted=trusted_files((), (config,), cwd=Path(request.cwd), environ=environ),
        expanded_secrets=secrets,
        names=NameBudget(request.name_budget) if request.name_budget is not None else None,
        settle_s=config.connect_timeout_s,  # a client without us would wait as long for the server
        allow_unsandboxed=request.allow_unsandboxed,
        environ=environ,
    )
