"""Tell what a policy lacks: by what a command names, before it starts, or by the errors and last words of its process.

A command and its variables are the user's; what a process says it lacks may be chosen by whoever wrote it.  That text
is hostile: at most 32 KiB of it are looked at, every expression takes time in proportion to it, and a hint states no
more than what is so outside: a path that exists, a host that is not reachable.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from itertools import islice
from typing import Final

import msgspec
from msgspec.structs import replace

from quarterdeck_protocol.addresses import is_whole_name, parse_destination
from quarterdeck_protocol.faults import NOTHING_TO_ADD
from quarterdeck_protocol.policy_values import Grant, Network, NetworkMode, PolicyValues, Tier
from quarterdeck_sandbox.policy.confinement import Confinement
from quarterdeck_sandbox.policy.mounts import MountKind, Places, View, is_within, is_within_any
from quarterdeck_sandbox.program.launch import LaunchPlan
from quarterdeck_sandbox.program.needed_paths import (
    NamedPath,
    RequiredPath,
    folder_to_make,
    is_code,
    named_in,
    project_of,
)
from quarterdeck_sandbox.program.resolve import resolve_program
from quarterdeck_sandbox.view.layout import build_view, is_visible
from quarterdeck_sandbox.view.secret_paths import IN_A_HOME, PathRules, credentials_touching, grant_for, offered

MAX_HINTS: Final = 5  # more would bury the first, which is mostly the right one
MAX_TEXT: Final = 32 * 1024  # characters looked at, the last ones
MAX_PATHS: Final = 20  # looked for in the error of one call

_PATH: Final = re.compile(
    r"""(?:(?<![\w.:/~-])|(?<=file://)|(?<=unix://))(~?/[^\s"'`<>|;,:()\[\]{}\x00-\x1f]{1,1024})"""
)
_QUOTED_PATH: Final = re.compile(r"""["'`](~?/[^"'`\n\x00-\x1f]{1,1024})["'`]""")
_HOST: Final = r"((?:[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62})\.){0,8}[A-Za-z0-9_][A-Za-z0-9_-]{0,62})"
_HOSTS: Final = (
    re.compile(r"\b(?:ENOTFOUND|EAI_AGAIN|EAI_NONAME) " + _HOST + r"(?::(\d{1,5}))?"),
    re.compile(r"\b(?:ECONNREFUSED|ENETUNREACH|EHOSTUNREACH|ETIMEDOUT) " + _HOST + r":(\d{1,5})"),
    re.compile(r"[Cc]ould not resolve host(?:name)?:? ['\"]?" + _HOST + r"(?::(\d{1,5}))?"),
    re.compile(r"[Ff]ailed to connect to " + _HOST + r" (?:\([^)\n]{1,80}\) )?port (\d{1,5})"),
    re.compile(r"\bhost=['\"]" + _HOST + r"['\"], port=(\d{1,5})"),
    re.compile(r"\bdial tcp:? (?:lookup )?" + _HOST + r"(?::(\d{1,5}))?"),
    re.compile(r"\bconnect to (?:host |server at \")?" + _HOST + r"[\" ,:]{1,3}port (\d{1,5})"),
)
_ADDRESS: Final = re.compile(r"\b(https?|wss?)://" + _HOST + r"(?::(\d{1,5}))?")
_UNREACHABLE: Final = re.compile(
    r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ENETUNREACH|EHOSTUNREACH|fetch failed|dns error|failed to lookup|getaddrinfo|"
    r"[Nn]ame resolution|Name or service not known|[Cc]ould not resolve|[Cc]onnection refused|Network is unreachable|"
    r"No route to host|[Ff]ailed to (?:connect|establish)|No address associated"
)
_READ_ONLY: Final = re.compile(r"EROFS|[Rr]ead-only file ?system")

_NO_ACCESS: Final = re.compile(r"EACCES|[Pp]ermission denied|Lock at '[^'\n]{1,1024}' could not be obtained")
"""The last one is what GitPython says of a lock that it cannot make."""

_CHANGES: Final = re.compile(
    r"\b(?:mkdir|mkdtemp|rename|rmdir|unlink|copyfile|symlink|link|chmod|ftruncate|[fl]?utimes?) ['\"]|"
    r"\b(?:[Cc](?:annot|ould not|an't)|[Ff]ailed to) (?:create|write|save)\b"
)
"""How Node names a call that changes what it was given, and what people write; of a hidden path the errno says only
that it is not there.
"""

_NOT_PERMITTED: Final = re.compile(r"EPERM|[Oo]peration not permitted|ECOMPROMISED")
"""npm reports the last one for a lock with times that it may not set."""

_NO_MODULE: Final = re.compile(
    r"ERR_MODULE_NOT_FOUND|MODULE_NOT_FOUND|Cannot find (?:module|package)|ModuleNotFoundError|ImportError|"
    r"No module named"
)
"""What interpreters say that see a program and not what it imports."""

_NOTHING_BESIDE: Final = re.compile(
    r"unable to open database file|readonly database|disk I/O error|EROFS|EACCES|ENOENT|EBUSY|"
    r"[Rr]ead-only file ?system|Permission denied|No such file"
)
"""What programs say that may change a file, and make none beside it."""

_PHRASES: Final = (
    ("Could not open a connection to your authentication agent", Grant.SSH_AGENT, "SSH_AUTH_SOCK"),
    ("Permission denied (publickey", Grant.SSH_AGENT, "SSH_AUTH_SOCK"),
    ("Unable to locate credentials", Grant.AWS, "AWS_CONFIG_FILE"),
    ("Could not load credentials from any providers", Grant.AWS, "AWS_CONFIG_FILE"),
    ("default credentials", Grant.GCLOUD, "CLOUDSDK_CONFIG"),
    ("gh auth login", Grant.GH, "GH_CONFIG_DIR"),
    ("Please tell me who you are", Grant.GIT_CONFIG, "GIT_CONFIG_GLOBAL"),
    ("Executable doesn't exist at", Grant.BROWSER, "PLAYWRIGHT_BROWSERS_PATH"),
    ("Could not find Chrome", Grant.BROWSER, "PUPPETEER_CACHE_DIR"),
    ("cannot open display", Grant.DISPLAY, "DISPLAY"),
    ("Missing X server or $DISPLAY", Grant.DISPLAY, "DISPLAY"),
)
"""What programs say when they miss what a grant gives, and the variable by which that is seen to be given."""

_LIMITS: Final = tuple(
    (re.compile(expression), limit)
    for limit, expression in {
        "processes": "can't start new thread|pthread_create|"
        r"(?:fork|spawn|clone)[^\n]{0,200}(?:EAGAIN|temporarily unav)",
        "memory_bytes": "heap out of memory|ENOMEM|Cannot allocate memory|MemoryError|bad_alloc|out of memory",
        "open_files": "EMFILE|Too many open files",
        "file_size_bytes": "EFBIG|File too large",
        "scratch_bytes": "ENOSPC|No space left on device",
    }.items()
)
"""What programs say at a limit, and the policy's name of it."""


class Attempt(Enum):
    """What a line says was tried with a path that it names."""

    UNKNOWN = auto()
    CHANGE = auto()  # to change it
    REFUSED = auto()  # to change it, and that this was refused


class Outside(msgspec.Struct, frozen=True):
    """What is known outside of the sandbox, where the process could not look."""

    visible: Callable[[str], bool]  # whether it sees a path
    exists: Callable[[str], bool]  # whether a path exists outside
    network: Network | None  # what it can reach; None when nothing is known
    user_home: str
    home: str  # its private home, where it looked for what lies in the user's
    env: frozenset[str] = frozenset()
    closed: tuple[str, ...] = ()  # what it may not write although it may write the folder around
    named: tuple[NamedPath, ...] = ()  # the paths that its command line and its variables name
    lone_files: tuple[str, ...] = ()  # files that it may change, in folders where it may make none
    why_no_broker: str = ""  # the reason why mode, owner and times of files are fixed; empty if they can be changed
    # Returns why a path may not be added to its policy, or an empty text; see `PathRules.objection`
    objection: Callable[[RequiredPath], str] = lambda _: ""
    only_readable: Callable[[str], bool] = lambda _: False  # whether its policy lets it read a path, and not change it

    def offer(self, path: str, label: str = "") -> RequiredPath | str:
        """Return the path to add so that this one works, or the reason why no path may be added."""
        return offered(NamedPath(path, label), self.user_home, self.objection)


_PASSWORDS: Final = ("/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/etc/gshadow-", "/etc/sudoers")
"""What nobody is advised to show."""

_OF_THE_SYSTEM: Final = ("/usr/", "/proc/", "/dev/")
_INSTALLERS: Final = ("PIP_", "UV_", "NPM_CONFIG_")
"""Settings of package managers, which every server gets: a hidden folder in them is no sign of what this one lacks."""


def missing_paths(
    plan: LaunchPlan,
    policy: PolicyValues,
    places: Places,
    environ: Mapping[str, str],
    variables: Mapping[str, str],
    *,
    names_cwd: bool,
    written: frozenset[str] = frozenset(),
) -> tuple[list[RequiredPath], list[str]]:
    """Return what a command names and its policy does not show, and in words what cannot be given so.  Start nothing.

    Of its environment `variables` came with the command and may name paths; `names_cwd` says whether its working
    directory did; `written` are options and variables for paths that the program is known to write.  Raise LaunchError
    if the command has no program, or the policy names what may not be shown.
    """
    program = resolve_program(plan, places.user_home, environ)
    # Whether this machine can give it is found out at the start, by who starts it.
    view = build_view(policy, plan, program, places, environ, nests_safely=True, can_close=True)
    home = os.path.realpath(places.user_home)
    own = [os.path.realpath(place) for place in (places.home, places.tmp)]
    cwd = [NamedPath(os.path.realpath(plan.cwd), "cwd")] if names_cwd else []
    rules = PathRules.of(policy, places)
    found: list[RequiredPath] = []
    said: dict[str, None] = {}
    for named in (*cwd, *named_in(plan.argv, variables, plan.cwd, home)):
        if is_within_any(named.path, own):
            continue
        need = _lacks(replace(named, is_written=named.label in written), view, rules)
        if isinstance(need, RequiredPath) and (held := _secrets_of(need, home)):
            need = f"{named.label} {need.path} is not offered: it holds {held}; to give it: --{need.key} {need.path}"
        if isinstance(need, str):
            said[need.lstrip()] = None
        elif need is not None:
            found.append(replace(need, source=named.source))
    return _together(found), list(said)


def _lacks(named: NamedPath, view: View, rules: PathRules) -> RequiredPath | str | None:
    """Return the path that the policy needs for this one, or why it cannot be added, or None if nothing is missing."""
    path, user_home = named.path, rules.user_home
    what = f"{named.label} {path}".lstrip()
    if os.path.lexists(path):
        if is_visible(view, path):
            return _lacks_around(named, view, rules)
        if grant := grant_for(path, user_home):
            return (
                f'{what} is not offered: add "grants": ["{grant}"] to its sandbox; '
                f"or, if it may see the file itself, --read {path}"
            )
        if not os.path.isdir(path) and not os.path.isfile(path):
            return f"{what} is not a file or folder: a socket or device leads out of the sandbox"
    elif new := folder_to_make(named, user_home):
        mount = view.covering(new)
        if mount is not None and mount.kind is MountKind.WRITE:
            return None
        made = RequiredPath("write", new, "the folder is to be made", is_new=True)
        why = rules.objection(made)
        return f"{what} is not offered: {why}" if why else made
    elif not os.path.isdir(folder := os.path.dirname(path)):
        return (
            f"{what} does not exist, and neither does its folder: create the folder first"
            if is_within(path, user_home)
            else None
        )
    elif is_visible(view, folder):
        return None
    need = rules.offer(named)
    return f"{what} is not offered: {need}" if isinstance(need, str) else need


def _secrets_of(need: RequiredPath, user_home: str) -> str:
    """Return what a path holds, or a folder above it, that is never offered unasked: keys, tokens, clients' files."""
    found = credentials_touching(os.path.realpath(need.path), user_home)
    of_clients = next((what for name, what in IN_A_HOME.items() if is_within(need.path, f"{user_home}/{name}")), "")
    return next((each.what for each in found), of_clients)


def _lacks_around(named: NamedPath, view: View, rules: PathRules) -> RequiredPath | None:
    if is_code(named.path):
        root = project_of(named.path, rules.user_home)
        is_lacking = root is not None and not is_visible(view, root)
    else:
        mount = view.covering(named.path)
        is_lacking = mount is not None and mount.kind is MountKind.WRITE and mount.target == named.path
        is_lacking = is_lacking and not os.path.isdir(named.path)
    need = rules.offer(named) if is_lacking else None
    if not isinstance(need, RequiredPath) or (not is_code(named.path) and need.key != "write"):
        return None
    return need


def _together(needs: Sequence[RequiredPath]) -> list[RequiredPath]:
    """Return each need once, without what another gives already."""
    wide = [need.path for need in needs if need.key == "write"]
    kept: dict[tuple[str, str], RequiredPath] = {}
    for need in needs:
        others = [other.path for other in needs if other is not need and other.key == need.key]
        is_given = any(path != need.path and is_within(need.path, path) for path in others)
        if not is_given and not (need.key == "read" and is_within_any(need.path, wide)):
            kept.setdefault((need.key, need.path), need)
    return list(kept.values())


def infer_hints(stderr_tail: str, confinement: Confinement) -> tuple[str, ...]:
    """Return at most `MAX_HINTS` guesses, likely ones first; look for the text's paths in the filesystem."""
    return hints_in(stderr_tail, _outside_of(confinement))


class Denial(msgspec.Struct, frozen=True):
    """A path that a process was denied: what would give it that, and the path itself if it exists, else its folder.

    Or a host that is not in its list: then both are the `host:port`, and the key is `network`.
    """

    need: RequiredPath
    path: str

    def __str__(self) -> str:
        return f"{self.need.key} {self.path}"

    def hint(self, allow: str) -> str:
        """Return a line for who reads the error, with the command that grants the path.

        `allow` begins that command; it is empty for a server without a row.
        """
        need = self.need
        name = need.key if need.key != "network" or not allow else "host"
        option = f"--{name} {shlex.quote(need.path)}"
        how = f"{allow} {option}" if allow else f"add {option} to its command, before its --"
        if need.key == "network":
            return f"quarterdeck: {need.path} is not among the hosts that this server may reach. To let it: {how}"
        if need.key == "write":
            return f"quarterdeck: this server cannot change {need.path}. To let it: {how}"
        return (
            f"quarterdeck: {need.path} is hidden from this server. To show it: {how} (--write lets it change it, too)"
        )


def find_denial(error: str, confinement: Confinement, given: Iterable[str] = ()) -> Denial | None:
    """Return the first path in a tool's error that its process was denied, and that its user may grant; or a host.

    If the error names neither, then the first of the paths that the tool was `given`. Return None if there is none, or
    only what `allow` refuses or what holds keys. A host is a whole name, and missing in a list of hosts: an address
    could be one of the user's network.
    """
    outside, text = _outside_of(confinement), error[-MAX_TEXT:]
    paths = ((_outside(path, outside), Attempt.UNKNOWN) for path in given if path.isprintable())
    return (
        _denied_path(_paths_in(text, outside), outside) or _denied_host(text, outside) or _denied_path(paths, outside)
    )


def _denied_path(paths: Iterable[tuple[str, Attempt]], outside: Outside) -> Denial | None:
    for path, attempt in islice(paths, MAX_PATHS):
        if attempt is Attempt.REFUSED:
            # Named by itself, a part of `.git` would be open with its hooks and settings; a work tree's stay closed.
            path = path.partition("/.git/")[0].removesuffix("/.git")  # noqa: PLW2901
        if (need := _denied(path, outside, attempt)) is not None:
            return Denial(need, path if path.isprintable() and outside.exists(path) else need.path)
    return None


def _denied_host(text: str, outside: Outside) -> Denial | None:
    for host, port in islice(_named_hosts(text), MAX_PATHS):
        with suppress(ValueError):
            entry = str(parse_destination(f"{host}:{port}"))
            is_listed = not isinstance(outside.network, tuple) or entry in outside.network
            if not is_listed and is_whole_name(host):
                return Denial(RequiredPath("network", entry), entry)
    return None


def _denied(path: str, outside: Outside, attempt: Attempt) -> RequiredPath | None:
    """Return what would let it use a path; None if nothing is in its way, or nothing may be granted."""
    folder = os.path.dirname(path)
    if outside.visible(path):
        is_refused = attempt is Attempt.REFUSED
        if not is_refused or is_within_any(path, outside.closed) or path.startswith(_OF_THE_SYSTEM):
            return None
        need = RequiredPath("write", path if os.path.isdir(path) else folder)
    else:
        # Names with a dot are of programs: their settings and secrets.
        if "/." in path or not (outside.exists(path) or outside.exists(folder)):
            return None
        key = "read" if attempt is Attempt.UNKNOWN else "write"
        need = RequiredPath(key, path if outside.exists(path) else folder)
        if outside.visible(need.path):
            return None
    return None if _secret_in(need.path, outside.user_home) or outside.objection(need) else need


def _secret_in(path: str, user_home: str) -> str:
    """Return why nobody is advised to grant a path for the sake of what a process said; empty if there is no reason."""
    if not path.isprintable():
        return "its name holds control characters"
    if path in _PASSWORDS:
        return "it holds passwords"
    return next((f"it holds {found.what}" for found in credentials_touching(path, user_home)), "")


def why_not_granted(need: RequiredPath, policy: PolicyValues, places: Places) -> str:
    """Return why no grant is proposed for a path that a process was denied; empty if one may be."""
    rules = PathRules.of(policy, places)
    # A link to a home is one, too.
    for path in dict.fromkeys((need.path, os.path.realpath(need.path))):
        if need.key == "write" and "/.git/" in f"{path}/":
            return "it decides which programs git runs: name the folder around it"
        if "/." in path and not is_within_any(path, policy.read):
            return "names that begin with a dot are of programs: their settings and secrets"
        if why := _secret_in(path, rules.user_home) or rules.objection(replace(need, path=path)):
            return why
    return ""


def _outside_of(confinement: Confinement) -> Outside:
    plan, home = confinement.plan, confinement.plan.env.get("HOME", "")
    env = {name: value for name, value in plan.env.items() if not name.upper().startswith(_INSTALLERS)}
    real_home = os.path.realpath(home)

    def exists(path: str) -> bool:
        # What a link in the private home leads to is not there: it is the user's (see `home_links`).
        is_linked = home and is_within(path, home) and not is_within(os.path.realpath(path), real_home)
        return not is_linked and os.path.lexists(path)

    read = tuple(map(os.path.realpath, confinement.policy.read)) if confinement.policy else ()

    def only_readable(path: str) -> bool:
        mount = confinement.view.covering(path)
        return mount is not None and mount.kind is MountKind.READ and is_within_any(path, read)

    return Outside(
        visible=confinement.view.shows,
        exists=exists,
        network=confinement.network,
        user_home=os.path.realpath(confinement.user_home),
        home=home,
        env=frozenset(confinement.view.env),
        closed=confinement.view.closed,
        named=tuple(named_in(plan.argv, env, plan.cwd, confinement.user_home)),
        lone_files=tuple(_lone_files(confinement.view)),
        why_no_broker=confinement.machine.why_no_broker if confinement.tier is Tier.LANDLOCK else "",
        objection=_objection(confinement),
        only_readable=only_readable,
    )


def _objection(confinement: Confinement) -> Callable[[RequiredPath], str]:
    policy, env = confinement.policy or PolicyValues(), confinement.plan.env
    writable = (*(env[name] for name in ("HOME", "TMPDIR") if name in env), *policy.write)
    real = os.path.realpath
    private, configuration = (tuple(map(real, each)) for each in (confinement.private, confinement.configuration))
    home, changed = real(confinement.user_home), frozenset(map(real, writable))
    return PathRules(policy, home, private, changed, configuration).objection


def hints_in(text: str, outside: Outside) -> tuple[str, ...]:
    """Return at most `MAX_HINTS` guesses for a text, given what is known of the outside."""
    text = text[-MAX_TEXT:]
    found: dict[str, None] = {}
    for hint in _all(text, outside):
        found[hint] = None
        if len(found) == MAX_HINTS:
            break
    return tuple(found)


def _all(text: str, outside: Outside) -> Iterator[str]:
    yield from _of_programs(text, outside)
    if outside.why_no_broker and _NOT_PERMITTED.search(text):
        why = outside.why_no_broker
        yield f"it can change mode, owner and times of no file, not even of its own, as {why}: see `quarterdeck doctor`"
    if _NOTHING_BESIDE.search(text):
        for file in outside.lone_files:
            folder = os.path.dirname(file)
            why = outside.objection(RequiredPath("write", folder))
            fix = f"move it into a folder of its own: {why}" if why else f'add "write": ["{folder}"] in its place'
            yield f"{file} may be changed, but no file can be created beside it; {fix}"
    yield from _of_paths(text, outside)
    yield from _of_named(outside)
    yield from _of_hosts(text, outside)
    for phrase, grant, variable in _PHRASES:
        if phrase in text and variable not in outside.env:
            yield f'it may need "grants": ["{grant}"]'
    for expression, limit in _LIMITS:
        if expression.search(text):
            yield f'it may have met a limit; raise "limits": {{"{limit}": …}}'


def _of_paths(text: str, outside: Outside) -> Iterator[str]:
    for path, attempt in _paths_in(text, outside):
        if outside.visible(path):
            is_refused = attempt is Attempt.REFUSED
            if is_refused and is_within_any(path, outside.closed):
                yield f"{path} can only be read: quarterdeck or other programs trust what is there"
            elif is_refused and not path.startswith(_OF_THE_SYSTEM):
                folder = os.path.dirname(path)
                why = outside.objection(RequiredPath("write", folder))
                yield f"{path} can only be read; " + (why or f'add "write": ["{folder}"]')
        elif outside.exists(path):
            yield _hidden(path, outside)


def _paths_in(text: str, outside: Outside) -> Iterator[tuple[str, Attempt]]:
    """Yield each path in a text once, as it is outside, and what its line says was tried with it."""
    seen: set[str] = set()
    for line in text.splitlines():
        is_read_only = _READ_ONLY.search(line) is not None
        is_refused = _NO_ACCESS.search(line) is not None
        otherwise = Attempt.CHANGE if _CHANGES.search(line) else Attempt.UNKNOWN
        for expression in (_QUOTED_PATH, _PATH):
            for match in expression.finditer(line):
                path = _outside(match[1].rstrip(".,!?\\"), outside)
                if path not in seen:
                    seen.add(path)
                    is_kept = is_read_only or (is_refused and outside.only_readable(path))
                    yield path, Attempt.REFUSED if is_kept else otherwise


def _of_programs(text: str, outside: Outside) -> Iterator[str]:
    if not _NO_MODULE.search(text):
        return
    for named in outside.named:
        if is_code(named.path) and outside.visible(named.path) and outside.exists(named.path):
            root = project_of(named.path, outside.user_home)
            is_hidden = root is not None and not outside.visible(root)
            if root is not None and is_hidden and not outside.objection(RequiredPath("read", root)):
                yield f'{named.path} is visible, but not all of its project; add "read": ["{root}"]'


def _of_named(outside: Outside) -> Iterator[str]:
    for named in outside.named:
        if outside.visible(named.path):
            continue
        if outside.exists(named.path):
            yield _hidden(named.path, outside, named.label)
        elif outside.exists(os.path.dirname(named.path)):
            need = outside.offer(named.path, named.label)
            of = f"{named.label} names {named.path}, which" if named.label else f"{named.path}"
            fix = need if isinstance(need, str) else f"add {need.shown}"
            yield f"{of} is not there, and its folder is hidden; {fix}"


def _lone_files(view: View) -> Iterator[str]:
    for mount in view.mounts:
        if mount.kind is MountKind.WRITE and os.path.isfile(mount.target):
            above = view.covering(os.path.dirname(mount.target))
            if above is None or above.kind is not MountKind.WRITE:
                yield mount.target


def _outside(path: str, outside: Outside) -> str:
    """Return where the user has what the process looked for in its own home."""
    if path.startswith("~/"):
        return os.path.normpath(outside.user_home + path[1:])
    path = os.path.normpath(path)
    if outside.home and path != outside.home and is_within(path, outside.home) and not outside.exists(path):
        return outside.user_home + path[len(outside.home) :]
    return path


def _hidden(path: str, outside: Outside, label: str = "") -> str:
    user_home = outside.user_home
    if path in _PASSWORDS:
        return f"{path} is hidden, as it should be: it holds passwords"
    if grant := grant_for(path, user_home):
        without = f' to sign without the file, or "read": ["{path}"]' if grant is Grant.SSH_AGENT else ""
        return f'{path} exists but is hidden; add "grants": ["{grant}"]{without}'
    if path.endswith(".sock") or is_within(path, "/run") or is_within(path, "/var/run"):
        return f'{path} exists but is hidden; it leads out of the sandbox: only "preset": "trusted" allows it'
    what = next((what for name, what in IN_A_HOME.items() if is_within(path, f"{user_home}/{name}")), "")
    trust = f" if it may see your {what}" if what else ""
    need = outside.offer(path, label)
    if isinstance(need, str):
        return f"{path} exists but is hidden, and {NOTHING_TO_ADD}: {need}"
    if not need.why:
        return f'{path} exists but is hidden; add "read": ["{path}"]{trust}'
    return f"{path} exists but is hidden; add {need.shown} ({need.why}){trust}"


def _of_hosts(text: str, outside: Outside) -> Iterator[str]:
    if outside.network in {None, NetworkMode.FULL}:
        return
    named = tuple(_named_hosts(text))
    if not named and outside.network is not NetworkMode.INTERNET and _UNREACHABLE.search(text):
        yield 'a host could not be reached; add "network": ["HOST:PORT"], or use "network": "internet"'
    for host, port in named:
        if not 0 < port < 65536:
            continue
        is_local = host == "localhost" or host.startswith("127.")
        entry = f"{'localhost' if is_local else host}:{port}"
        if isinstance(outside.network, tuple):
            if entry.lower() not in (known.lower() for known in outside.network):
                yield f'{entry} is not among the hosts that it may reach; add "network": ["{entry}"]'
        elif outside.network is not NetworkMode.INTERNET:
            yield f'{entry} cannot be reached; add "network": ["{entry}"]'
        elif is_local:
            yield f'{entry} is the sandbox\'s own, not this machine\'s; add "network": ["{entry}"]'


def _named_hosts(text: str) -> Iterator[tuple[str, int]]:
    for expression in _HOSTS:
        for match in expression.finditer(text):
            yield match[1], int(match[2] or 443)
    if _UNREACHABLE.search(text):
        for match in _ADDRESS.finditer(text):
            yield match[2], int(match[3] or (80 if match[1] in {"http", "ws"} else 443))
