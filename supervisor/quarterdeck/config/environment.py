"""The environment of a stdio server: our allow-list, what its configuration names, and nothing else.  Pure.

Files that may hold credentials (`PIP_CONFIG_FILE`, `NPM_CONFIG_USERCONFIG`) are not on the list.
"""

import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.secrets import has_login

_PLACES: Final = re.compile(
    r"XDG_[A-Z_]+"
    r"|(PYENV|RBENV|NODENV|NVM|FNM|ASDF|MISE|VOLTA)_[A-Z_]+|UV_(PYTHON_INSTALL|TOOL|CACHE)_DIR|PIPX_[A-Z_]+"
    r"|(CARGO|RUSTUP)_HOME|(BUN|DENO)_INSTALL|PYTHONUSERBASE"
    r"|SSH_AUTH_SOCK|GIT_CONFIG_GLOBAL|AWS_(CONFIG|SHARED_CREDENTIALS)_FILE|CLOUDSDK_CONFIG"
    r"|KUBECONFIG|GH_CONFIG_DIR|PLAYWRIGHT_BROWSERS_PATH|PUPPETEER_CACHE_DIR"
    r"|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY"
)
"""Paths of version managers and package runners, then of named grants."""

DEFAULT_PATH: Final = "/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
"""The PATH where we have none, as when a desktop application starts us."""

_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "NO_PROXY")

_PASSED: Final = frozenset(
    {
        *("PATH", "LANG", "TZ"),
        *_PROXIES,
        *(name.lower() for name in _PROXIES),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"),
        *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_TRUSTED_HOST"),
        *("PIP_CERT", "PIP_PROXY"),
        *("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX"),
        *("UV_INDEX_STRATEGY", "UV_INSECURE_HOST", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_PYTHON_INSTALL_MIRROR"),
    }
)

_PASSED_TO_NPM: Final = re.compile(
    r"npm_config_(?:registry|@[^:]+:registry|proxy|https[_-]proxy|noproxy|cafile|strict[_-]ssl)", re.IGNORECASE
)
"""npm reads its settings in either case; `npm_config_//host/:_authToken` is one too, and is not passed."""


class Lookups(Mapping[str, str]):
    """An environment that records which names were looked up."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        return self.environ[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.environ)

    def __len__(self) -> int:
        return len(self.environ)


def shared_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of our own environment that every server or its worker gets."""
    return {name: value for name, value in environ.items() if _is_listed(name) or _PLACES.fullmatch(name)}


def user_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of our own environment that a worker needs."""
    return {name: value for name, value in environ.items() if _PLACES.fullmatch(name)}


def server_environment(
    config: StdioServerConfig, environ: Mapping[str, str], home: Path, tmpdir: Path
) -> dict[str, str]:
    """Return the whole environment of the server: the allow-list, what it inherits by name, then `env`; the later wins.

    `environ` is our own environment; `home` and `tmpdir` become HOME and TMPDIR, private to the server.
    """
    passed = {
        name: value for name, value in environ.items() if _is_listed(name) and not _holds_credentials(name, value)
    }
    if not passed.get("PATH"):
        passed["PATH"] = DEFAULT_PATH
    passed |= {"HOME": str(home), "TMPDIR": str(tmpdir)}
    # What Python servers make of sets would differ at each start (mcp-atlassian's defaults), and be held as changed.
    passed["PYTHONHASHSEED"] = str(zlib.crc32(config.id.encode()))
    inherited = config.inherit_env + config.sandbox.environment
    passed |= {name: environ[name] for name in inherited if name in environ}
    return passed | dict(config.env)


def _is_listed(name: str) -> bool:
    return name in _PASSED or name.startswith("LC_") or _PASSED_TO_NPM.fullmatch(name) is not None


def _holds_credentials(name: str, value: str) -> bool:
    # A PATH with a blank in it looks like one, and never is.
    return name != "PATH" and has_login(value)
