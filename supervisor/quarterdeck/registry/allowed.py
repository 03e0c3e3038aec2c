"""Judge the runner options, commands and variables that a registry's entry fixes, against allowlists.  Pure.

A person looks at the package that an entry names.  Nothing else in the entry may run other code, or fetch code from
elsewhere.  A list of bad names is never complete.  So an option or a variable is refused unless it is known to be
harmless, or its name shows that it is the server's own.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

QUIET: Final = frozenset({"-y", "--yes", "-q", "--quiet"})
"""Runner options that do not change the program."""

_NAMES_PACKAGE: Final[Mapping[str, frozenset[str]]] = {
    "npx": frozenset({"-p", "--package"}),
    "uvx": frozenset({"--from"}),
    "pipx": frozenset({"--spec"}),
}

_OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "npx": frozenset({"--", "--prefer-offline", "--prefer-online"}),
    "uvx": frozenset({"--isolated", "--no-cache", "-n"}),
    "pipx": frozenset({"--", "--no-cache"}),
}

_PROGRAMS: Final = re.compile(
    r"(?:ba|da|z|k|c|tc|fi|pw)?sh|busybox|env|xargs|sudo|doas|exec|command|eval|cmd|powershell|(?:python|pypy)[\d.]*w?"
    r"|node(?:js)?|np[mx]|pnpm|pnpx|yarn|bunx?|deno|corepack|tsx|ts-node|uvx?|pip[\d.]*|pipx|conda|poetry|perl|ruby|gem"
    r"|php|lua|java|javac|go|cargo|rustc|dotnet|git|ssh|scp|curl|wget|make|awk|sed|vim?|nano|tar|docker|podman",
    re.IGNORECASE,
)
"""Programs that run their arguments and are not servers."""

_READ_BY_OTHERS: Final = re.compile(
    r"(?:LD|DYLD|GLIBC|GCONV|MALLOC|NIX|NPM|NPX|NODE|NVM|COREPACK|YARN|PNPM|BUN|DENO|TSX|TS_NODE|V8|ELECTRON|UV|UVX|PIP"
    r"|PIPX|PYTHON|PYENV|PYPI|VIRTUAL|VIRTUALENV|CONDA|POETRY|HATCH|TWINE|GIT|SSH|GPG|GNUPG|SSL|SSLKEYLOGFILE|OPENSSL"
    r"|CURL|WGET|REQUESTS|AIOHTTP|GRPC|BASH|ZSH|SHELL|SH|PS|PERL|PERL5|RUBY|GEM|BUNDLE|JAVA|JDK|JVM|_JAVA|MAVEN|GRADLE"
    r"|GO|CARGO|RUST|RUSTC|RUSTUP|DOTNET|CORECLR|COMPLUS|LUA|PHP|TCL|CLASSPATH|HTTPS?|ALL|FTP|NO|XDG|DBUS|SUDO|DOCKER"
    r"|AWS_CONFIG|AWS_SHARED|KUBECONFIG|BROWSER|EDITOR|VISUAL|PAGER|LESS|MANPATH|TERMINFO|LOCPATH|LANGUAGE|HOSTALIASES"
    r"|RES|RESOLV|PATH|HOME|USER|LOGNAME|PWD|OLDPWD|TMP|TMPDIR|TEMP|ENV|IFS|CDPATH|GLOBIGNORE|PROMPT|APPDATA|PYO3)"
    r"(?:_.*)?|(?:PYTHON|RUBY|PERL|NODE|JAVA)\w*",
    re.IGNORECASE,
)
"""First words of variables that loaders, shells, interpreters, package runners and libraries read."""

_HARMLESS: Final = frozenset(
    """
    PYTHONUNBUFFERED PYTHONIOENCODING PYTHONUTF8 PYTHONDONTWRITEBYTECODE NODE_ENV NODE_NO_WARNINGS NO_COLOR LANG LC_ALL
    TZ LOGLEVEL
    """.split()  # noqa: SIM905 - readable as words, unreadable as a list
)
"""Variables that may have any value: they change how a program writes, waits or listens."""

_FOR_A_PERSON: Final = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"})
"""Variables that other programs read, but that a person may set: networks need them."""

_OWN_ENDS: Final = re.compile(
    r"(?:\w+_)?(?:(?:API|ACCESS|AUTH|BEARER|CLIENT|SECRET|PUBLIC|PRIVATE)_?(?:KEY|TOKEN|ID|SECRET)|KEY|TOKEN|ID|SECRET"
    r"|USER(?:NAME)?|EMAIL|PASSWORD|URL|URI|ENDPOINT|HOST|HOSTNAME|PORT|DOMAIN|REGION|ZONE|PROJECT|ORG(?:ANIZATION)?"
    r"|WORKSPACE|TENANT|ACCOUNT|DATABASE|SCHEMA|TABLE|INDEX|NAMESPACE|COLLECTION|BUCKET|VERSION|MODEL|PROVIDER|LANGUAGE"
    r"|LOCALE|CURRENCY|TIMEZONE|TIMEOUT(?:_M?S|_SECONDS)?|INTERVAL|TTL|LIMIT|SIZE|COUNT|RETRIES|DEPTH|LEVEL|MODE|TYPE"
    r"|FORMAT|TRANSPORT|PROTOCOL|TOOLS|TOOLSETS|FEATURES|SCOPES?|ENABLED|DISABLED|READ_?ONLY|DEBUG|VERBOSE)",
    re.IGNORECASE,
)
"""Name endings of servers' own variables for credentials, addresses and switches."""

_WORD: Final = re.compile(r"[a-z0-9]+")

_COMMON_WORDS: Final = frozenset(
    {"mcp", "server", "servers", "the", "and", "for", "com", "org", "dev", "app", "tool", "tools", "api", "client"}
    | {"http", "stdio"}
)
"""Name parts that many packages share."""


def runner_problem(program: str, words: Sequence[str]) -> str:
    """Return why a runner may not get these words before the package's arguments; empty if it may.

    They are options, the package if the entry has it there, and the command within the package.
    """
    naming = _NAMES_PACKAGE[program]
    allowed = QUIET | naming | _OPTIONS[program]
    options = [word.partition("=")[0] for word in words if word.startswith("-")]
    for option in options:
        if option not in allowed:
            return f"it has {program} called with {option[:64]!r}, which may start something else"
    if sum(option in naming for option in options) > 1:
        return f"it has {program} take more than one package"
    return ""


def command_problem(program: str, args: Sequence[str], place: int, package: str) -> str:
    """Return why a runner may not start the given command of a package; empty if it may, or if none is given.

    A runner searches for a command in the package, and among the user's own commands.  `place` is the index of the
    argument that names the package.
    """
    naming = _NAMES_PACKAGE[program]
    if args[place].partition("=")[0] not in naming and (place == 0 or args[place - 1] not in naming):
        return ""
    command = next((word for word in args[place + 1 :] if not word.startswith("-")), "")
    is_own = any(word in command.lower() for word in (*own_words(package), "mcp"))
    if _PROGRAMS.fullmatch(command) or not is_own or re.search(r"[/\\]", command):
        return f"it has {program} start {command[:64]!r}, which is not known as a command of the package"
    return ""


def own_words(*names: str) -> frozenset[str]:
    """Return the words that distinguish a package's or a server's name from others."""
    words = {word for name in names for word in _WORD.findall(name.lower())}
    return frozenset(word for word in words if len(word) > 2 and word not in _COMMON_WORDS) or frozenset(words)


def variable_problem(name: str, own: Collection[str], *, is_given: bool) -> str:
    """Return why an entry may not set this variable; empty if it may.

    `own` has the `own_words` of its server and package; `is_given`: a person gives the whole value, else the entry
    fixes it.
    """
    if name.upper() in _HARMLESS or (is_given and name.upper() in _FOR_A_PERSON):
        return ""
    if _READ_BY_OTHERS.fullmatch(name):
        verb = "asks for" if is_given else "sets"
        return f"it {verb} {name}, which may have another program started than the package"
    if is_given or _OWN_ENDS.fullmatch(name) or set(_WORD.findall(name.lower())) & ({*own, "mcp"}):
        return ""
    return f"it sets {name}, which is not known as a variable of its own"
