"""Where people keep what must not be read by accident: keys, tokens, browsers' profiles, other agents' settings.

Such a place is shown only when a policy names it, or a grant does.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from quarterdeck_protocol.policy import Grant
from quarterdeck_sandbox.paths import is_within, overlap

IN_A_HOME: Final[Mapping[str, str]] = MappingProxyType(
    {
        ".ssh": "ssh keys",
        ".aws": "AWS credentials",
        ".azure": "Azure credentials",
        ".config/gcloud": "Google Cloud credentials",
        ".config/doctl": "DigitalOcean credentials",
        ".oci": "Oracle Cloud credentials",
        ".fly": "Fly credentials",
        ".kube": "Kubernetes credentials",
        ".docker": "Docker credentials",
        ".config/containers/auth.json": "registry credentials",
        ".config/gh": "GitHub credentials",
        ".config/hub": "GitHub credentials",
        ".config/glab-cli": "GitLab credentials",
        ".git-credentials": "git credentials",
        ".config/git/credentials": "git credentials",
        ".cache/git/credential": "git credentials",
        ".netrc": "passwords",
        ".npmrc": "npm tokens",
        ".yarnrc.yml": "npm tokens",
        ".pypirc": "PyPI tokens",
        ".cargo/credentials": "crates.io tokens",
        ".cargo/credentials.toml": "crates.io tokens",
        ".gem/credentials": "RubyGems tokens",
        ".m2/settings.xml": "Maven passwords",
        ".gradle/gradle.properties": "Gradle passwords",
        ".config/composer/auth.json": "Composer tokens",
        ".local/share/uv/credentials": "uv tokens",
        ".terraform.d": "Terraform tokens",
        ".vault-token": "a Vault token",
        ".pgpass": "database passwords",
        ".my.cnf": "database passwords",
        ".s3cfg": "S3 credentials",
        ".boto": "storage credentials",
        ".config/rclone": "storage credentials",
        ".gnupg": "GnuPG keys",
        ".pki": "certificates' keys",
        ".password-store": "passwords",
        ".config/op": "1Password",
        ".config/Bitwarden": "Bitwarden",
        ".local/share/keyrings": "the keyring",
        ".local/share/kwalletd": "the wallet",
        ".Xauthority": "the display's key",
        ".mozilla": "Firefox's profiles",
        ".thunderbird": "Thunderbird's profiles",
        ".config/google-chrome": "Chrome's profiles",
        ".config/chromium": "Chromium's profiles",
        ".config/BraveSoftware": "Brave's profiles",
        ".config/microsoft-edge": "Edge's profiles",
        ".config/vivaldi": "Vivaldi's profiles",
        ".config/opera": "Opera's profiles",
        ".var/app": "applications' profiles",
        "snap": "applications' profiles",
        ".claude": "Claude's settings",
        ".claude.json": "Claude's settings",
        ".config/Claude": "Claude's settings",
        ".codex": "Codex's settings",
        ".gemini": "Gemini's settings",
        ".cursor": "Cursor's settings",
        ".config/github-copilot": "Copilot's tokens",
    }
)
"""What each holds, by its path in a home."""

_OF_THE_SYSTEM: Final = (("/etc/ssl/private", "certificates' keys"), ("/etc/pki/tls/private", "certificates' keys"))

_GRANTS: Final = {
    ".ssh": Grant.SSH_AGENT,
    ".aws": Grant.AWS,
    ".config/gcloud": Grant.GCLOUD,
    ".kube": Grant.KUBE,
    ".config/gh": Grant.GH,
    ".gitconfig": Grant.GIT_CONFIG,
    ".config/git/config": Grant.GIT_CONFIG,
    ".cache/ms-playwright": Grant.BROWSER,
    ".cache/puppeteer": Grant.BROWSER,
    ".Xauthority": Grant.DISPLAY,
}


@dataclass(frozen=True, slots=True)
class Credential:
    """A place that holds secrets.

    Attributes:
        path: where people know it.
        real: where it is, symbolic links followed.
        what: what it holds, for people.
    """

    path: str
    real: str
    what: str


def credentials_touching(path: str, user_home: str) -> Iterator[Credential]:
    """Each existing one that contains `path` or lies within it, of the user and of other homes that `path` touches."""
    for home in _homes(path, user_home):
        for name, what in IN_A_HOME.items():
            yield from _touching(path, f"{home.rstrip('/')}/{name}", what)
    for place, what in _OF_THE_SYSTEM:
        yield from _touching(path, place, what)


def grant_for(path: str, user_home: str) -> Grant | None:
    """The grant that would show this path, if there is one."""
    return next((grant for name, grant in _GRANTS.items() if is_within(path, f"{user_home}/{name}")), None)


def _touching(path: str, place: str, what: str) -> Iterator[Credential]:
    if os.path.lexists(place):
        real = os.path.realpath(place)
        if overlap(path, place) or overlap(path, real):
            yield Credential(place, real, what)


def _homes(path: str, user_home: str) -> Iterator[str]:
    yield user_home
    others = ["/root"]
    if overlap(path, "/home"):
        try:
            others += [entry.path for entry in os.scandir("/home")]
        except OSError:
            pass
    yield from (home for home in others if home != user_home and overlap(path, home))
