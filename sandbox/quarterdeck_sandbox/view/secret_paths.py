"""Which paths a sandbox may show: never our own nor the system's, keys and tokens only by their name or by a grant.

Judged path by path before anything starts; every refusal is `LaunchError("sandbox_refused")` and says what to do.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, Self

import msgspec

from quarterdeck_protocol.faults import NOTHING_TO_ADD
from quarterdeck_protocol.policy_values import Grant, PolicyValues
from quarterdeck_sandbox import observed_files as observed
from quarterdeck_sandbox.hostile_files import Followed
from quarterdeck_sandbox.policy.mounts import Places, ancestors, is_within, is_within_any, overlap
from quarterdeck_sandbox.program.launch import LaunchError, refusal
from quarterdeck_sandbox.program.needed_paths import NamedPath, RequiredPath, is_of_one_thing, need_of

IN_A_HOME: Final[Mapping[str, str]] = MappingProxyType(
    {
        ".ssh": "ssh keys", ".aws": "AWS credentials", ".azure": "Azure credentials",
        ".config/gcloud": "Google Cloud credentials", ".config/doctl": "DigitalOcean credentials",
        ".oci": "Oracle Cloud credentials", ".fly": "Fly credentials", ".kube": "Kubernetes credentials",
        ".docker": "Docker credentials", ".config/containers/auth.json": "registry credentials",
        ".config/gh": "GitHub credentials", ".config/hub": "GitHub credentials",
        ".config/glab-cli": "GitLab credentials", ".git-credentials": "git credentials",
        ".config/git/credentials": "git credentials", ".cache/git/credential": "git credentials",
        ".netrc": "passwords", ".npmrc": "npm tokens", ".yarnrc.yml": "npm tokens", ".pypirc": "PyPI tokens",
        ".cargo/credentials": "crates.io tokens", ".cargo/credentials.toml": "crates.io tokens",
        ".gem/credentials": "RubyGems tokens", ".m2/settings.xml": "Maven passwords",
        ".gradle/gradle.properties": "Gradle passwords", ".config/composer/auth.json": "Composer tokens",
        ".local/share/uv/credentials": "uv tokens", ".terraform.d": "Terraform tokens",
        ".vault-token": "a Vault token", ".pgpass": "database passwords", ".my.cnf": "database passwords",
        ".s3cfg": "S3 credentials", ".boto": "storage credentials", ".config/rclone": "storage credentials",
        ".gnupg": "GnuPG keys", ".pki": "certificates' keys", ".password-store": "passwords",
        ".config/op": "1Password", ".config/Bitwarden": "Bitwarden", ".local/share/keyrings": "the keyring",
        ".local/share/kwalletd": "the wallet", ".Xauthority": "the display's key", ".mozilla": "Firefox's profiles",
        ".thunderbird": "Thunderbird's profiles", ".config/google-chrome": "Chrome's profiles",
        ".config/chromium": "Chromium's profiles", ".config/BraveSoftware": "Brave's profiles",
        ".config/microsoft-edge": "Edge's profiles", ".config/vivaldi": "Vivaldi's profiles",
        ".config/opera": "Opera's profiles", ".var/app": "applications' profiles", "snap": "applications' profiles",
        ".claude": "Claude's settings", ".claude.json": "Claude's settings", ".config/Claude": "Claude's settings",
        ".codex": "Codex's settings", ".gemini": "Gemini's settings", ".cursor": "Cursor's settings",
        ".config/github-copilot": "Copilot's tokens",
    }
)  # fmt: skip
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

_GRANTED_FILES: Final = {Grant.SSH_AGENT: (), Grant.AWS: ("config", "credentials"), Grant.KUBE: ("config",)}
"""What these grants show of their folder; an agent signs with keys, and shows none. The other grants show all of it."""

_NEVER: Final = {
    "/": "everything: name the folders that it needs",
    "/proc": "other processes: a sandbox has its own /proc",
    "/sys": "the kernel's settings: nothing of it can be given",
    "/dev": "devices: a sandbox has its own /dev",
    "/run": 'sockets of the system\'s services, which act outside of any sandbox: use "grants", or "preset": "trusted"',
}
"""What cannot be named, with all that lies below, and what it is."""

_BUT: Final = ("/run/media",)  # below those, and harmless: disks that were plugged in

_SHARED: Final = {
    "/tmp": "temporary files and sockets of everyone: name a folder in it",  # noqa: S108 - refused here
    "/home": "the homes of all users: name a folder in one",
    "/etc": "all settings of the system: name the file",
    "/var": "state of all services: name a folder in it",
}
"""What cannot be named itself."""


class Credential(msgspec.Struct, frozen=True):
    """A path that holds secrets, as people know it; `real` has no links, `what` names the secrets."""

    path: str
    real: str
    what: str


class PathRules(msgspec.Struct, frozen=True):
    """Which paths may be shown to one process; symbolic links are followed."""

    policy: PolicyValues  # names the exceptions
    user_home: str
    private: tuple[str, ...]  # our own directories
    writable: frozenset[str]  # what it can change, and so plant links in
    configuration: tuple[str, ...] = ()  # the folders of our own configuration, which hints never offer

    @classmethod
    def of(cls, policy: PolicyValues, places: Places) -> Self:
        """Return the rules for a process with these directories."""
        writable = (str(places.home), str(places.tmp), *policy.write)
        real = observed.realpath
        home, config = str(places.user_home), tuple(map(real, configuration_folders(places)))
        return cls(policy, real(home), tuple(map(real, places.private)), frozenset(map(real, writable)), config)

    def admit(self, path: str, key: str, *, is_new: bool = False) -> Followed:
        """Return where a `read` or `write` path of the policy leads, which `is_new` says is a folder still to be made.
        Raise LaunchError `sandbox_refused`.
        """
        followed = observed.follow(path) if is_new else locate(path, key)
        real = followed.real
        for place, why in _NEVER.items():
            if real == place or (place != "/" and is_within(real, place) and not is_within_any(real, _BUT)):
                raise refusal(f'"{key}" names {_leading(path, real)}, which gives {why}')
        if real in _SHARED:
            raise refusal(f'"{key}" names {_leading(path, real)}, which gives {_SHARED[real]}')
        mode = stat.S_IFDIR if is_new else observed.stat(real).st_mode
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            raise refusal(
                f'"{key}" names {_leading(path, real)}, which is neither a file nor a folder: what listens '
                'behind a socket or device acts outside of any sandbox; use "grants", or "preset": "trusted"'
            )
        self._trust_links(path, key, followed)
        self.protect(real, f'"{key}" names {_leading(path, real)}')
        self._guard_credentials(path, real, key)
        return followed

    def offer(self, named: NamedPath) -> RequiredPath | str:
        """Return the path to add to the policy so that the named one works, or the reason why no path may be added.

        Every hint comes from here, and `allow` adds only these paths: a start admits the returned path.
        """
        return offered(named, self.user_home, self.objection)

    def objection(self, need: RequiredPath) -> str:
        """Return why hints may not offer this path; empty if a start admits it."""
        real = observed.realpath(need.path)
        if not is_of_one_thing(need.path, self.user_home) and observed.isdir(real):
            return f"{need.path} holds more than one thing's files, as a home does: name a folder in it"
        for place in (*self.private, *self.configuration):
            if overlap(real, place):
                return f"{place} is quarterdeck's own: choose another place"
        try:
            self.admit(need.path, need.key, is_new=need.is_new)
        except LaunchError as error:
            return str(error)
        return ""

    def protect(self, real: str, what: str) -> None:
        """Raise LaunchError `sandbox_refused` for what would show our own directories."""
        for place in self.private:
            if overlap(real, place):
                raise refusal(f"{what}, and with it {place}, which is quarterdeck's own: name narrower folders")

    def can_change(self, path: str) -> bool:
        """Return whether the process itself can change what is at a real path."""
        return not self.writable.isdisjoint(ancestors(path))

    def _trust_links(self, path: str, key: str, followed: Followed) -> None:
        for link, _ in followed.links:
            owner = observed.lstat(link).st_uid
            if owner not in {0, os.geteuid()}:
                raise refusal(
                    f'"{key}" names {path}, through the link {link} of uid {owner}: name {followed.real} itself'
                )
            if self.can_change(os.path.dirname(link)):
                raise refusal(
                    f'"{key}" names {path}, through the link {link}, which the process itself can change: '
                    f"name {followed.real} itself"
                )

    def _guard_credentials(self, path: str, real: str, key: str) -> None:
        for found in credentials_touching(real, self.user_home):
            if is_within(path, found.path) or is_within(path, found.real):
                continue  # named as what it is
            if found.path in (*self.policy.read, *self.policy.write) or is_within_any(found.path, self.policy.hidden):
                continue
            grant = grant_for(found.path, self.user_home)
            if grant in self.policy.grants:
                files = _GRANTED_FILES.get(grant)
                if files is None or real in {os.path.join(found.real, name) for name in files}:
                    continue
            verb = "leads into" if is_within(real, found.real) else "contains"
            raise refusal(
                f'"{key}" names {path}, which {verb} {found.path} ({found.what}): name narrower folders, '
                f'or add "hidden": ["{found.path}"], or name it in "{key}" if it is to be seen'
            )


def locate(path: str, key: str) -> Followed:
    """Return where a path of the policy leads.  Raise LaunchError `sandbox_refused` if nowhere."""
    followed = observed.follow(path)
    if followed.endless or not observed.exists(followed.real):
        raise refusal(f'"{key}" names {_leading(path, followed.real)}, which does not exist: make it, or take it out')
    return followed


def hidden_message(what: str, named: NamedPath, rules: PathRules) -> str:
    """Return the message that an existing path is hidden, with the change that would show it."""
    path = named.path
    if grant := grant_for(path, rules.user_home):
        if grant is Grant.SSH_AGENT:
            return (
                f'{what} is hidden: add "read": ["{path}"] to its sandbox; or take it out of the command line, '
                f'and add "grants": ["{grant}"], to sign without the file'
            )
        return f'{what} is hidden: add "grants": ["{grant}"], or "read": ["{path}"] to its sandbox'
    try:
        mode = stat.S_IFMT(observed.stat(path).st_mode)
    except OSError:
        mode = stat.S_IFREG
    if mode not in {stat.S_IFDIR, stat.S_IFREG}:
        return f'{what} is hidden: what is behind it acts outside of any sandbox; "preset": "trusted" has none'
    need = rules.offer(named)
    if isinstance(need, str):
        return f"{what} is hidden, and {NOTHING_TO_ADD}: {need}"
    if not need.why:
        return f'{what} is hidden: add "read": ["{path}"] or "write": ["{path}"] to its sandbox'
    return f"{what} is hidden: add {need.shown} to its sandbox ({need.why})"


def offered(named: NamedPath, user_home: str, objection: Callable[[RequiredPath], str]) -> RequiredPath | str:
    """Return the path to add to a policy for a named one, or the reason why no path may be added.

    `objection` returns why a path may not be added, or an empty text; see `PathRules.objection`.
    """
    need = need_of(named, user_home)
    if need is not None:
        return objection(need) or need
    if observed.isdir(named.path):
        return objection(RequiredPath("read", named.path)) or "it is a folder of many things: name a folder in it"
    if observed.lexists(named.path):
        return "its folder holds other files, too: move it into a folder of its own"
    if observed.isdir(os.path.dirname(named.path)):
        if "." not in os.path.basename(named.path):
            return f"it is not there yet, and would be created in a folder with other files: first mkdir {named.path}"
        return "it would be created in a folder with other files: choose another place"
    lost = RequiredPath("read", named.path)  # it was there a moment ago
    return objection(lost) or lost


def configuration_folders(places: Places) -> tuple[str, ...]:
    """Return the folders of our own configuration: the default ones, and those of the protected files."""
    usual = (f"{places.user_home}/{name}" for name in (".config/quarterdeck", ".config/indusvx", ".indusvx"))
    named = (os.path.dirname(path) for path in places.protected if os.path.basename(path) == "mcp.json")
    return (*usual, *(folder for folder in named if os.path.basename(folder) in {"quarterdeck", "indusvx"}))


def credentials_touching(path: str, user_home: str) -> Iterator[Credential]:
    """Yield each existing one that contains `path` or lies within it, of the user and of other homes it touches."""
    for home in _homes(path, user_home):
        for name, what in IN_A_HOME.items():
            yield from _touching(path, f"{home.rstrip('/')}/{name}", what)
    for place, what in _OF_THE_SYSTEM:
        yield from _touching(path, place, what)


def grant_for(path: str, user_home: str) -> Grant | None:
    """Return the grant that would show this path; None without one."""
    return next((grant for name, grant in _GRANTS.items() if is_within(path, f"{user_home}/{name}")), None)


def _touching(path: str, place: str, what: str) -> Iterator[Credential]:
    if observed.lexists(place):
        real = observed.realpath(place)
        if overlap(path, place) or overlap(path, real):
            yield Credential(place, real, what)


def _homes(path: str, user_home: str) -> Iterator[str]:
    yield user_home
    others = ["/root"]
    if overlap(path, "/home"):
        try:
            others += [f"/home/{name}" for name in observed.listdir("/home")]
        except OSError:
            pass
    yield from (home for home in others if home != user_home and overlap(path, home))


def _leading(path: str, real: str) -> str:
    return path if path == real else f"{path} (a link to {real})"
