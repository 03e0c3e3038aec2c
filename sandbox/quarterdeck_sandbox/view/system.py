"""The part of a view that is the same for everyone: the system's programs and libraries, and harmless settings.

Of /etc an allow-list, with nothing in it that authenticates anybody.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from quarterdeck_protocol.policy import NetworkMode
from quarterdeck_sandbox.hostile_files import follow
from quarterdeck_sandbox.policy.mounts import Mount, MountKind, is_within_any
from quarterdeck_sandbox.program.prefixes import SYSTEM_FOLDERS, is_fit

USER: Final = "sandbox"
"""What the user inside is called."""

_OF_ETC: Final = """
    alternatives bash.bashrc ca-certificates/extracted crypto-policies debian_version fonts gai.conf gitconfig
    host.conf hosts ld.so.cache ld-musl-x86_64.path ld-musl-aarch64.path locale.alias locale.conf localtime lsb-
    release mime.types npmrc nsswitch.conf os-release pip.conf pki/ca-trust pki/java pki/tls/cert.pem pki/tls/certs
    pki/tls/openssl.cnf protocols redhat-release resolv.conf services shells ssh/ssh_known_hosts ssl/ca-bundle.pem
    ssl/cert.pem ssl/certs ssl/openssl.cnf static system-release timezone uv/uv.toml
"""
"""Settings that programs fail or misbehave without; each that is a folder costs a mount at every start."""

_OF_ETC_BEGINNING: Final = ("java-", "ImageMagick")

MAX_COPIED_BYTES: Final = 128 * 1024
"""A text up to this long is shown as a copy, which starts faster than a mount does."""

_CHANGING: Final = frozenset({"/etc/hosts", "/etc/resolv.conf"})
"""Files that change while servers run, so no copies."""

_CERTIFICATES: Final = """
    AWS_CA_BUNDLE CARGO_HTTP_CAINFO CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE CURL_CA_BUNDLE DENO_CERT GIT_SSL_CAINFO
    GRPC_DEFAULT_SSL_ROOTS_FILE_PATH HTTPLIB2_CA_CERTS NIX_SSL_CERT_FILE NODE_EXTRA_CA_CERTS NPM_CONFIG_CAFILE
    PIP_CERT REQUESTS_CA_BUNDLE SSL_CERT_DIR SSL_CERT_FILE npm_config_cafile
"""
"""Variables that name certificates."""

MAX_CERTIFICATES_BYTES: Final = 8 * 1024 * 1024
"""A file of certificates is looked at whole; the usual one has 220 KiB."""


def system_mounts() -> Iterator[Mount]:
    """Programs, libraries, harmless settings, and empty places for temporary files."""
    for folder in (*SYSTEM_FOLDERS, "/nix/store"):
        if os.path.islink(folder):
            yield Mount(MountKind.LINK, folder, os.readlink(folder))
        elif os.path.isdir(folder):
            yield Mount(MountKind.READ, folder, folder)
    try:
        present = os.listdir("/etc")
    except OSError:
        present = []
    names = (*_OF_ETC.split(), *(name for name in present if name.startswith(_OF_ETC_BEGINNING)))
    for name in names:
        yield from _as_it_is(f"/etc/{name}")
    for link in ("/run/current-system", "/etc/mtab"):
        if os.path.islink(link):
            yield Mount(MountKind.LINK, link, os.readlink(link))
    yield Mount(MountKind.SCRATCH, "/tmp")  # noqa: S108 - its own, empty


def identity_mounts(uid: int, gid: int, home: str) -> tuple[Mount, ...]:
    """The /etc/passwd and /etc/group of a sandbox that runs as `uid` and `gid`: nobody else is in them."""
    users = f"root:x:0:0::/root:/usr/sbin/nologin\n{USER}:x:{uid}:{gid}::{home}:/bin/sh\n"
    groups = f"root:x:0:\n{USER}:x:{gid}:\n"
    if uid != 65534:
        users += "nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n"
        groups += "nogroup:x:65534:\n"
    return Mount(MountKind.DATA, "/etc/group", groups), Mount(MountKind.DATA, "/etc/passwd", users)


def name_mounts(network: NetworkMode, hosts: str = "", resolver: str = "") -> tuple[Mount, ...]:
    """The /etc/hosts and /etc/resolv.conf of a sandbox: the system's where names are resolved by it, else those given.

    Args:
        network: the mode in force; for a list of hosts, `LOOPBACK`.
        hosts: text of /etc/hosts for a network of its own.
        resolver: text of /etc/resolv.conf, likewise.
    """
    if network in {NetworkMode.INTERNET, NetworkMode.FULL}:
        return tuple(mount for path in ("/etc/hosts", "/etc/resolv.conf") for mount in _as_it_is(path))
    return Mount(MountKind.DATA, "/etc/hosts", hosts), Mount(MountKind.DATA, "/etc/resolv.conf", resolver)


def certificates(env: Mapping[str, str], user_home: str, shown: Callable[[str], bool]) -> Iterator[str]:
    """What variables of a process name and nothing has shown, where it is certificates and nothing else."""
    for path in sorted({os.path.normpath(env[name]) for name in _CERTIFICATES.split() if name in env}):
        if not path.startswith("/") or shown(path):
            continue
        if _holds_certificates(path) or (os.path.isdir(path) and is_fit(path, user_home)):
            yield path


def _as_it_is(path: str) -> Iterator[Mount]:
    """What is there.  A link into the system stays one, as its text is the name of a time zone; others are resolved."""
    if os.path.islink(path):
        text = os.readlink(path)
        if is_within_any(os.path.normpath(os.path.join(os.path.dirname(path), text)), SYSTEM_FOLDERS):
            yield Mount(MountKind.LINK, path, text)
            return
    if not os.path.exists(path):
        return
    if path in _CHANGING or (copy := _text(path)) is None:
        yield Mount(MountKind.READ, path, follow(path).real)
    else:
        yield Mount(MountKind.DATA, path, copy)


def _text(path: str) -> str | None:
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > MAX_COPIED_BYTES:
            return None
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return None


def _holds_certificates(path: str) -> bool:
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > MAX_CERTIFICATES_BYTES:
            return False
        with open(path, "rb") as file:
            text = file.read()
    except OSError:
        return False
    return b"-----BEGIN CERTIFICATE-----" in text and b"PRIVATE KEY" not in text
