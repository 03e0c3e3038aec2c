"""The registries, mirrors, logins and proxies that the user has configured for npm, pip and uv.

An installation reaches these hosts and no others, and is given these settings and no others.  Settings of the user
alone are read, none of the folder that a row happens to run in: a project could name a registry of its own.
"""

import configparser
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from quarterdeck_sandbox import open_regular

MAX_FILE_BYTES: Final = 1024 * 1024  # of a file with settings

NPM_REGISTRY: Final = "https://registry.npmjs.org/"
PYPI_INDEX: Final = "https://pypi.org/simple"
_FILES_OF: Final = {
    "pypi.org": ("files.pythonhosted.org",),
    "test.pypi.org": ("test-files.pythonhosted.org",),
    "npm.pkg.github.com": ("pkg-npm.githubusercontent.com",),
}
"""Hosts from which an index gives its files, where these are others than its own."""

_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_PORTS: Final = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
_NPM_KEYS: Final = frozenset(
    {
        *("registry", "proxy", "https-proxy", "http-proxy", "noproxy", "cafile", "ca", "ca[]", "cert", "key"),
        *("strict-ssl", "before", "min-release-age", "_auth", "_authtoken", "username", "_password", "nodedir"),
    }
)
_NPM_PREFIX: Final = "npm_config_"
_NPM_FILES: Final = ("cafile", "nodedir", "certfile", "keyfile")


class Indexes(msgspec.Struct, frozen=True):
    """What an installation is given of the user's settings.

    Attributes:
        hosts: each `host:port` that it may reach.
        env: variables for the installer.
        files: files for its private home, by name.
        read: certificates and folders with packages that it may read.
        secrets: texts that nobody else may see.
    """

    hosts: tuple[str, ...]
    env: dict[str, str] = {}
    files: dict[str, str] = {}
    read: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


def npm_indexes(environ: Mapping[str, str], home: Path) -> Indexes:
    """Return the settings that npm has outside of any project."""
    variables = {
        _npm_key(name[len(_NPM_PREFIX) :]): value
        for name, value in environ.items()
        if name.lower().startswith(_NPM_PREFIX)
    }
    user = variables.get("userconfig") or str(home / ".npmrc")
    shared = variables.get("globalconfig") or f"{variables.get('prefix') or '/usr'}/etc/npmrc"
    found = _npmrc(_read(shared), environ) | _npmrc(_read(user), environ)
    found |= {key: [value] for key, value in variables.items()}
    kept = {key: values for key, values in found.items() if _is_kept(key) and values != [""]}
    kept.setdefault("registry", [NPM_REGISTRY])
    urls = [value for key, values in kept.items() if _is_url(key) for value in values]
    proxies = _proxies(environ)
    secrets = [
        value
        for key, values in kept.items()
        if key.rpartition(":")[2].lower().lstrip("_") in {"auth", "authtoken", "password"} or key == "key"
        for value in values
    ]
    lines = [f"{key}={_written(value)}\n" for key, values in kept.items() for value in values]
    return Indexes(
        hosts=_hosts([*urls, *proxies.values()]),
        env=proxies | _certificates(environ),
        files={".npmrc": "".join(lines)},
        read=_existing(
            [
                *(value for key, values in kept.items() if key.rpartition(":")[2] in _NPM_FILES for value in values),
                *_certificates(environ).values(),
            ]
        ),
        secrets=_secrets(urls, [*proxies.values()], secrets),
    )


def python_indexes(
    environ: Mapping[str, str], home: Path, *, is_pip_first: bool, system: Path = Path("/etc")
) -> Indexes:
    """Return the settings of uv, and pip's where uv has none, for either of them; the other way round for pipx."""
    uv, pip = _uv(environ, home, system), _pip(environ, home, system)
    first, second = (pip, uv) if is_pip_first else (uv, pip)
    found = first if first.names_index else msgspec.structs.replace(second, cert=first.cert or second.cert)
    proxies = _proxies(environ) | ({"HTTPS_PROXY": found.proxy, "HTTP_PROXY": found.proxy} if found.proxy else {})
    default = found.default or ("" if found.no_index else PYPI_INDEX)
    urls = [url for url in (default, *found.extra, *found.find_links) if url]
    local = [unquote(_parts(url).path) for url in urls if _parts(url).scheme in {"", "file"}]
    missing = {path for path in local if not os.path.exists(path)}
    extra, links = (
        [url for url in each if unquote(_parts(url).path) not in missing] for each in (found.extra, found.find_links)
    )
    cert = _certificates(environ) | ({"SSL_CERT_FILE": found.cert} if found.cert else {})
    env = {
        "PIP_INDEX_URL": default,
        "PIP_EXTRA_INDEX_URL": " ".join(extra),
        "PIP_FIND_LINKS": " ".join(links),
        "PIP_TRUSTED_HOST": " ".join(found.insecure),
        "PIP_CERT": cert.get("SSL_CERT_FILE", ""),
        "PIP_NO_INDEX": "1" if found.no_index else "",
        "UV_DEFAULT_INDEX": default,
        "UV_INDEX": " ".join(extra),
        "UV_FIND_LINKS": ",".join(links),
        "UV_INSECURE_HOST": " ".join(found.insecure),
        "UV_NO_INDEX": "1" if found.no_index else "",
        **found.others,
    }
    hosts = _hosts([*urls, *proxies.values()])
    netrc = _netrc(_read(environ.get("NETRC") or str(home / ".netrc")), {host.rpartition(":")[0] for host in hosts})
    logins = [value for name, value in found.others.items() if name.endswith("_PASSWORD")]
    return Indexes(
        hosts=hosts,
        env={name: value for name, value in env.items() if value} | proxies | cert,
        files={".netrc": netrc} if netrc else {},
        # The pages of an index often name files that lie beside them.
        read=_existing([*(path.rstrip("/").removesuffix("/simple") for path in local), *cert.values()]),
        secrets=_secrets(urls, proxies.values(), [*logins, *re.findall(r"password\s+(\S+)", netrc)]),
    )


class _PythonSettings(msgspec.Struct, frozen=True):
    default: str = ""
    extra: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    insecure: tuple[str, ...] = ()
    no_index: bool = False
    cert: str = ""
    proxy: str = ""
    others: dict[str, str] = {}

    @property
    def names_index(self) -> bool:
        return bool(self.default or self.extra or self.find_links or self.no_index)


def _pip(environ: Mapping[str, str], home: Path, system: Path) -> _PythonSettings:
    config = environ.get("XDG_CONFIG_HOME") or str(home / ".config")
    files = (f"{system}/xdg/pip/pip.conf", f"{system}/pip.conf", f"{home}/.pip/pip.conf", f"{config}/pip/pip.conf")
    named = environ.get("PIP_CONFIG_FILE", "")
    found: dict[str, str] = {}
    for path in (*files, named) if named != os.devnull else ():  # which is how pip is told to read none
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read_string(_read(path))
        except configparser.Error:
            continue  # pip would refuse to start with it
        for section in ("global", "install"):
            if parser.has_section(section):
                found.update({key.replace("_", "-"): value for key, value in parser.items(section) if value})
    for name, value in environ.items():
        if name.startswith("PIP_") and value:
            found[name.removeprefix("PIP_").lower().replace("_", "-")] = value
    return _PythonSettings(
        default=found.get("index-url", ""),
        extra=tuple(found.get("extra-index-url", "").split()),
        find_links=tuple(found.get("find-links", "").split()),
        insecure=tuple(found.get("trusted-host", "").split()),
        no_index=found.get("no-index", "").lower() in {"1", "true", "yes", "on"},
        cert=found.get("cert", ""),
        proxy=found.get("proxy", ""),
    )


def _uv(environ: Mapping[str, str], home: Path, system: Path) -> _PythonSettings:
    config = environ.get("XDG_CONFIG_HOME") or str(home / ".config")
    said: dict[str, object] = {}
    files = (f"{system}/uv/uv.toml", f"{config}/uv/uv.toml", environ.get("UV_CONFIG_FILE", ""))
    for path in files if not environ.get("UV_NO_CONFIG") else ():
        try:
            read = tomllib.loads(_read(path))
        except tomllib.TOMLDecodeError:
            continue  # uv would refuse to start with it
        pip = read.pop("pip", {})
        said |= (pip if isinstance(pip, dict) else {}) | read
    indexes = said.get("index", [])
    tables = [each for each in indexes if isinstance(each, dict)] if isinstance(indexes, list) else []
    default = next((str(each.get("url", "")) for each in tables if each.get("default")), str(said.get("index-url", "")))
    extra = [
        f"{each['name']}={each.get('url', '')}" if each.get("name") else str(each.get("url", ""))
        for each in tables
        if not each.get("default") and not each.get("explicit")
    ] + _texts(said.get("extra-index-url"))
    kept = ("UV_EXCLUDE_NEWER", "UV_INDEX_STRATEGY", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS")
    others = {name: environ[name] for name in environ if name in kept}
    others |= {name: environ[name] for name in environ if re.fullmatch(r"UV_INDEX_\w+_(?:USERNAME|PASSWORD)", name)}
    for key in ("exclude-newer", "index-strategy"):
        if isinstance(value := said.get(key), str):
            others.setdefault(f"UV_{key.upper().replace('-', '_')}", value)
    if said.get("native-tls") or said.get("system-certs"):
        others.setdefault("UV_NATIVE_TLS", "true")
    return _PythonSettings(
        default=environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL") or default,
        extra=tuple((environ.get("UV_INDEX", "") + " " + environ.get("UV_EXTRA_INDEX_URL", "")).split() or extra),
        find_links=tuple(re.split(r"[,\s]+", environ.get("UV_FIND_LINKS", "")))
        if environ.get("UV_FIND_LINKS")
        else tuple(_texts(said.get("find-links"))),
        insecure=tuple(environ.get("UV_INSECURE_HOST", "").split() or _texts(said.get("allow-insecure-host"))),
        no_index=bool(environ.get("UV_NO_INDEX") or said.get("no-index")),
        others=others,
    )


def _npmrc(text: str, environ: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, sign, value = line.partition("=")
        key, value = key.strip(), value.strip()
        if not sign or not key or key.startswith(("#", ";")):
            continue
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            try:
                value = msgspec.json.decode(value, type=str)
            except msgspec.MsgspecError:
                value = value[1:-1]
        value = re.sub(r"\$\{([^}?]+)\??\}", lambda name: environ.get(name[1], ""), value)
        if key.endswith("[]"):
            found.setdefault(key, []).append(value)
        else:
            found[key] = [value]
    return found


def _written(value: str) -> str:
    """Return a value so that npm reads it as it is, with what would begin a comment or a line."""
    return value if re.fullmatch(r"[^;#\\\"'\r\n]*", value) else msgspec.json.encode(value).decode()


def _npm_key(name: str) -> str:
    return name if name.startswith("//") else re.sub(r"(?!^)_", "-", name).lower()


def _is_kept(key: str) -> bool:
    return key.startswith("//") or bool(re.fullmatch(r"@[^:]+:registry", key)) or key.lower() in _NPM_KEYS


def _is_url(key: str) -> bool:
    return key in {"registry", "proxy", "https-proxy", "http-proxy"} or key.endswith(":registry")


def _hosts(urls: Iterable[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for url in urls:
        parts = _parts(url)
        port = _port(url)
        if parts.hostname and port:
            for host in (parts.hostname, *_FILES_OF.get(parts.hostname, ())):
                found[f"[{host}]:{port}" if ":" in host else f"{host}:{port}"] = None
    return tuple(found)


def _parts(url: str) -> SplitResult:
    return urlsplit(re.sub(r"^[\w-]+=(?=\w+://)", "", url))  # uv's indexes may have a name


def _port(url: str) -> int | None:
    parts = _parts(url)
    try:
        return parts.port or _PORTS.get(parts.scheme.lower())
    except ValueError:
        return None


def _secrets(urls: Iterable[str], proxies: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    """Return what must not be shown: passwords and, as some indexes have tokens there, names of users in URLs."""
    found: dict[str, None] = dict.fromkeys(value for value in others if value)
    for url in (*urls, *proxies):
        parts = _parts(url)
        for text in (parts.password, parts.username):
            if text:
                found |= dict.fromkeys((text, unquote(text)))
    return tuple(found)


def _proxies(environ: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in (*_PROXIES, "NO_PROXY"):
        if value := environ.get(name.lower()) or environ.get(name):
            found |= {name: value, name.lower(): value}
    return found


def _certificates(environ: Mapping[str, str]) -> dict[str, str]:
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE")
    return {name: environ[name] for name in names if environ.get(name)}


def _existing(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.abspath(path) for path in paths if path and os.path.exists(path)))


def _netrc(text: str, hosts: set[str]) -> str:
    """Return the logins of these hosts alone."""
    words, kept = text.split(), []
    for machine, rest in _machines(words):
        if machine in hosts:
            kept.append(" ".join(("machine", machine, *rest)) + "\n")
    return "".join(kept)


def _machines(words: list[str]) -> Iterator[tuple[str, list[str]]]:
    starts = [index for index, word in enumerate(words[:-1]) if word == "machine"]
    for start, end in pairwise([*starts, len(words)]):
        pairs = words[start + 2 : end]
        kept = [
            word
            for key, value in zip(pairs[::2], pairs[1::2], strict=False)
            if key in {"login", "password", "account"}
            for word in (key, value)
        ]
        yield words[start + 1], kept


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return value.split()
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _read(path: str) -> str:
    if not path:
        return ""
    try:
        with open_regular(path) as file:
            return file.read(MAX_FILE_BYTES).decode(errors="replace")
    except OSError:
        return ""
