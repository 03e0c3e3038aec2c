"""Which of our own variables a worker is told, so that it finds the user's tools and what a policy grants.  Pure.

All of them say where something is, none holds a secret; and none reaches a server by this way alone.
"""

import re
from collections.abc import Mapping
from typing import Final

_PLACES: Final = re.compile(
    r"XDG_[A-Z_]+"
    r"|(PYENV|RBENV|NODENV|NVM|FNM|ASDF|MISE|VOLTA)_[A-Z_]+|UV_(PYTHON_INSTALL|TOOL|CACHE)_DIR|PIPX_[A-Z_]+"
    r"|(CARGO|RUSTUP)_HOME|(BUN|DENO)_INSTALL|PYTHONUSERBASE"
    r"|SSH_AUTH_SOCK|GIT_CONFIG_GLOBAL|AWS_(CONFIG|SHARED_CREDENTIALS)_FILE|CLOUDSDK_CONFIG"
    r"|KUBECONFIG|GH_CONFIG_DIR|PLAYWRIGHT_BROWSERS_PATH|PUPPETEER_CACHE_DIR"
    r"|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY"
)
"""Of version managers and package runners, then of named grants."""


def user_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Of our own environment, what a worker needs."""
    return {name: value for name, value in environ.items() if _PLACES.fullmatch(name)}
