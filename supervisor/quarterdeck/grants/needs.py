"""List what a server needs and its sandbox does not give, each with its reason and a safe default.

A row's command line and variables count, and what `known_needs.toml` says of its package: not of one from a git
repository, a URL or an index that the row names.
Only looks.  Never among the needs: a home, keys and tokens, clients' files, our own places, sockets.
"""

import os
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Final

import msgspec

from quarterdeck.config.allow_paths import missing, sandbox_with
from quarterdeck.config.clients.client_locations import UserDirectories, user_locations
from quarterdeck.config.clients.known_clients import CLIENTS
from quarterdeck.seals.request import PackageIndex, PackageRequest, normal_name, request_of
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig
from quarterdeck_protocol.policy_values import Grant, NetworkMode
from quarterdeck_sandbox import LaunchError, RequiredPath, is_within

INSTALLERS: Final = ("npm_config_", "uv_", "pip_")
"""Prefixes of variables by which a row could have its package from somewhere else."""


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of one package.

    Attributes:
        name: the package's, as in messages.
        write: its options and variables for folders and files that it writes; empty for an argument without an option.
        hosts: each `host:port` that it needs for its work.
        grants: named pieces of the user's environment that it works with.
        writing_tools: its tools that change files, where its own definitions may not say so.
        beside_code: variables for files that it keeps beside its code unless they are set, and the files' names; from a
            seal, which nothing can be written to, they lie in its private home.
    """

    name: str = ""
    write: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()
    writing_tools: tuple[str, ...] = ()
    beside_code: dict[str, str] = {}


class Need(msgspec.Struct, frozen=True):
    """One thing that a server needs.

    Attributes:
        key: of its `sandbox`: `read`, `write`, `network` or `grants`.
        value: an absolute path, a `host:port`, or the name of a grant.
        reason: who says so, such as `argument 2`.
        remark: what else there is to know; empty if nothing.
        is_new: whether it is a folder that has to be made first.
        is_default: whether a yes to all gives it.
    """

    key: str
    value: str
    reason: str
    remark: str = ""
    is_new: bool = False
    is_default: bool = True


class ServerNeeds(msgspec.Struct, frozen=True):
    """What one server needs; `problems` are what keeps it from working and cannot be given, in words."""

    server: str
    needs: tuple[Need, ...] = ()
    problems: tuple[str, ...] = ()


NOTHING_KNOWN: Final = Known()

_HELD_BY_GRANTS: Final = {
    Grant.SSH_AGENT: "ssh agent, which signs with your keys", Grant.AWS: "AWS credentials",
    Grant.GCLOUD: "Google Cloud credentials", Grant.KUBE: "Kubernetes credentials", Grant.GH: "GitHub credentials",
}  # fmt: skip
"""Grants that hold keys or tokens, which nobody is offered."""


def needs_of(
    config: ServerConfig, environ: Mapping[str, str], definitions: Mapping[str, object] | None = None
) -> ServerNeeds:
    """Return what a server needs; `definitions` are its tools, by name, as far as they were ever listed.

    Raises `LaunchError` if it could not be started at all.
    """
    if not isinstance(config, StdioServerConfig) or not config.sandbox.confines_files:
        return ServerNeeds(config.id)
    known = known_of(config)
    paths, problems = missing(config, environ, written=frozenset(known.write))
    tools = writing_tools(known, definitions or {})
    needs: list[Need] = []
    clients = clients_by_file() if paths else {}
    for path in paths:
        if client := client_in(path.path, clients):
            problems.append(f"{path.path} is not offered: {client} keeps its settings there")
            continue
        needs.append(_need_of(path, tools))
    needs += [*_of_grants(config, known, environ, problems), *_of_hosts(config, known)]
    return ServerNeeds(config.id, tuple(needs), tuple(problems))


def _need_of(path: RequiredPath, tools: Iterable[str]) -> Need:
    remark = path.why
    if path.key == "read" and not remark and (named := _some(tools)):
        remark = f"{named} will fail: it may only read"
    return Need(path.key, path.path, path.source or "its working directory", remark, path.is_new)


def _some(tools: Iterable[str]) -> str:
    """Return the first tools of many, as a list."""
    names = list(tools)
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def client_in(path: str, clients: Mapping[str, str]) -> str:
    """Return the client, of these by their files, that keeps settings in a file or folder; empty for none."""
    real = os.path.realpath(path)
    return next((clients[file] for file in clients if is_within(file, real)), "")


def clients_by_file() -> dict[str, str]:
    """Return the title of each client that keeps settings in the user's home, by the real path of the file."""
    dirs = UserDirectories.here()
    return {
        os.path.realpath(location.path): client.title for client in CLIENTS for location in user_locations(client, dirs)
    }


def _of_grants(
    config: StdioServerConfig, known: Known, environ: Mapping[str, str], problems: list[str]
) -> Iterable[Need]:
    for grant in known.grants:
        if grant in config.sandbox.grants:
            continue
        if grant in _HELD_BY_GRANTS:
            held = _HELD_BY_GRANTS[grant]
            problems.append(f'it works with your {held}: not offered; to give it: "grants": ["{grant}"] in its sandbox')
            continue
        policy = config.sandbox.model_copy(update={"grants": (*config.sandbox.grants, grant)})
        try:
            missing(config, environ, policy)
        except LaunchError as error:
            problems.append(str(error))
        else:
            yield Need("grants", grant, f"known of {known.name}")


def _of_hosts(config: StdioServerConfig, known: Known) -> Iterable[Need]:
    network = config.sandbox.network
    if network in {None, NetworkMode.INTERNET, NetworkMode.FULL}:
        return
    is_list = isinstance(network, tuple)
    for host in known.hosts:
        if not is_list or host not in network:
            remark = "" if is_list else f"its network is {network}, so far"
            yield Need("network", host, f"known of {known.name}", remark, is_default=is_list)


def sandbox_of(row: Mapping[str, object], needs: Iterable[Need]) -> dict[str, object]:
    """Return the `sandbox` of a row as it is written, with these needs."""
    needs = tuple(needs)
    sandbox = sandbox_with(row, paths_of(needs))
    for key in ("network", "grants"):
        old = sandbox.get(key)
        kept = list(old) if isinstance(old, list) else []
        if added := [need.value for need in needs if need.key == key and need.value not in kept]:
            sandbox[key] = kept + added
    return sandbox


def paths_of(needs: Iterable[Need]) -> list[RequiredPath]:
    """Return those needs that are paths."""
    return [RequiredPath(need.key, need.value, is_new=need.is_new) for need in needs if need.key in {"read", "write"}]


def known_of(config: StdioServerConfig) -> Known:
    """Return what is known of the package of a row, if the row has it from the usual index."""
    request = request_of(config.command, config.args) if config.seal else None
    names_another_index = any(name.lower().startswith(INSTALLERS) for name in config.env)
    if not isinstance(request, PackageRequest) or names_another_index:
        return NOTHING_KNOWN
    is_python = request.index is PackageIndex.PYPI
    name = normal_name(request.name) if is_python else request.name
    return known_packages()["pypi" if is_python else "npm"].get(name, NOTHING_KNOWN)


@cache
def known_packages() -> Mapping[str, Mapping[str, Known]]:
    """Return what is known of packages, by index and name."""
    text = resources.files(__package__).joinpath("known_needs.toml").read_text("utf-8")
    found = msgspec.convert(tomllib.loads(text), dict[str, dict[str, Known]])
    return {
        index: {name: msgspec.structs.replace(known, name=name) for name, known in packages.items()}
        for index, packages in found.items()
    }


def writing_tools(known: Known, definitions: Mapping[str, object]) -> list[str]:
    """Return the tools that change something: by their annotations, else as it is known of the package."""
    if not definitions:
        return list(known.writing_tools)
    return [name for name, definition in definitions.items() if _is_writing(name, definition, known)]


def _is_writing(name: str, definition: object, known: Known) -> bool:
    hints = definition.get("annotations") if isinstance(definition, Mapping) else None
    hints = hints if isinstance(hints, Mapping) else {}
    reads = hints.get("readOnlyHint")
    if isinstance(reads, bool):
        return not reads
    return hints.get("destructiveHint") is True or name in known.writing_tools


def only_reads(config: StdioServerConfig) -> bool:
    """Return whether a server is given files to read, beside those of its program, and none to write."""
    if not config.sandbox.confines_files or config.sandbox.write:
        return False
    code = [word for word in (config.command, *config.args) if word.startswith("/") and os.path.isfile(word)]
    return any(not any(is_within(word, path) for word in code) for path in config.sandbox.read)
