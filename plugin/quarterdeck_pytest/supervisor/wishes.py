"""The servers of an instance: the settings of a configuration file or of a command, changed by a test's wish."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Final

import msgspec
from pydantic import ValidationError

from quarterdeck.config.load.file import ConfigFileError
from quarterdeck.config.load.problems import RowError
from quarterdeck.config.secrets.store import SecretError
from quarterdeck.config.settings import Settings
from quarterdeck_protocol.configs import Revision, ServerConfig, StdioServerConfig
from quarterdeck_protocol.names import did_you_mean, to_server_id
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.policy_values import Preset
from quarterdeck_pytest.messages import Wish

_PATHS: Final = ("read", "write", "hidden", "environment", "grants")
"""Lists of a server's needs, rather than of its confinement: a test adds to them."""


class WishError(Exception):
    """An impossible request of a test's, in one sentence."""


@dataclass(frozen=True, slots=True)
class Wished:
    """The servers to run, changed by the wish, and the settings of their file, empty for a command alone."""

    settings: Settings
    servers: tuple[ServerConfig, ...]


def wished(wish: Wish, environ: Mapping[str, str]) -> Wished:
    """Return the servers that a wish means. Raise `WishError` if it names an unknown one, or contradicts itself."""
    if wish.words:
        settings = replace(Settings(), environ=environ)
        servers: tuple[ServerConfig, ...] = (_of_command(wish),)
    else:
        try:
            settings = _of_file(wish, environ).for_owner()
        except (SecretError, RowError) as error:
            raise WishError(str(error)) from None
        servers = settings.servers
    return Wished(settings, tuple(_as_wished(server, wish) for server in servers))


def _of_command(wish: Wish) -> StdioServerConfig:
    """Return the row of a command, which may read the project that it belongs to."""
    try:
        return StdioServerConfig(
            id=to_server_id(wish.name or _name(wish.words)),
            command=wish.words[0],
            args=wish.words[1:],
            cwd=wish.cwd or None,
            sandbox=SandboxPolicy(read=(wish.cwd,) if wish.cwd else ()),
        )
    except ValidationError as error:
        raise WishError(f"the command {wish.words[0]!r} cannot be run: {plain_words(error)}") from None


def _name(words: tuple[str, ...]) -> str:
    """Return a name for a command: its first argument that is no option, else its own."""
    script = next((word for word in words[1:] if not word.startswith("-")), words[0])
    return PurePath(script).stem


def _of_file(wish: Wish, environ: Mapping[str, str]) -> Settings:
    try:
        settings = Settings.load([Path(wish.file)], environ)
    except ConfigFileError as error:
        raise WishError(str(error)) from None
    if not wish.server:
        return settings
    if wish.server not in settings.ids:
        hint = did_you_mean(wish.server, settings.ids, "servers")
        raise WishError(f"{wish.file} has no server {wish.server!r}{hint}")
    for row in settings.broken:
        if row.id == wish.server:
            raise WishError(f"{row.message}: {row.remedy}")
    return settings.only(wish.server)


def _as_wished(config: ServerConfig, wish: Wish) -> ServerConfig:
    changes: dict[str, object] = {}
    if wish.era:
        changes["protocol"] = Revision(wish.era)
    if wish.timeout_s is not None:
        changes |= dict.fromkeys(("connect_timeout_s", "list_timeout_s", "call_timeout_s"), wish.timeout_s)
    if isinstance(config, StdioServerConfig):
        changes["sandbox"] = _policy(config, wish)
        changes["env"] = {**config.env, **dict(wish.env)}
    return config.model_copy(update=changes)


def _policy(config: StdioServerConfig, wish: Wish) -> SandboxPolicy:
    """Return the row's policy with the test's keys; paths are added, another preset leaves only these."""
    given = msgspec.json.decode(wish.policy, type=dict[str, object]) if wish.policy else {}
    if not given and (not wish.network or not config.sandbox.confines_files):
        return config.sandbox
    base = config.sandbox.model_dump(mode="json")
    if given.get("preset", config.sandbox.preset) != config.sandbox.preset:
        base = {key: base[key] for key in _PATHS}
    elif isinstance(limits := given.get("limits"), dict):
        given = {**given, "limits": {**base["limits"], **limits}}
    added = {key: [*base[key], *more] for key in _PATHS if isinstance(more := given.get(key), list)}
    fields = {**base, **given, **added}
    if wish.network and "network" not in given and fields.get("preset") != Preset.TRUSTED:
        fields["network"] = wish.network
    try:
        return SandboxPolicy.model_validate(fields)
    except ValidationError as error:
        raise WishError(f"{config.id}: its policy cannot be: {plain_words(error)}") from None
