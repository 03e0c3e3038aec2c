"""Recognise a secret by its name, its looks, or its place in a URL; and cut URLs to what any message may show.  Pure.

A name (of a variable, an option, a header, a query parameter) is read as its words: `dbPassword`, `DB_PASSWORD` and
`db-password` are the same.  Mostly its last word decides: `--api-key` is secret, `--key-file` is where one is kept,
`--max-tokens` is a number, `--author` is no `auth`.  Module `recognise` knows where to look.
"""

import re
from collections.abc import Iterator
from enum import IntEnum
from typing import Final
from urllib.parse import urlsplit


class Secrecy(IntEnum):
    """How sure a name is that its value is secret."""

    NONE = 0
    LIKELY = 1
    """`--key`, `--token`, `--auth`: small numbers, switches and paths are no secrets."""
    CERTAIN = 2
    """`--password`, `--pin`: whatever stands there is."""


_CERTAIN_PARTS: Final = re.compile(
    r"passw|passphrase|passcode|secret(?!ar)|credential|seed_?(?:phrase|words)|recovery_?(?:phrase|words|codes?$)"
)
_LIKELY_PARTS: Final = re.compile(
    r"token(?!i[sz])|api_?keys?$|access_?keys?$|private_?keys?$|account_?keys?$|auth_?keys?$|shared_?keys?$|bearer|jwt"
    r"|authorization|cookie|webhook|csrf|xsrf|connection_?string|session_?id|sessid"
)
"""In a name's words, in small letters with `_` between them."""

_CERTAIN_LAST: Final = frozenset({"pw", "pin", "otp", "totp", "mdp", "psk"})
_LIKELY_LAST: Final = frozenset(
    {
        *("key", "keys", "auth", "pat", "cred", "creds", "sig", "signature", "sas", "dsn", "hmac", "sid", "nonce"),
        *("salt", "seed", "mnemonic", "oauth", "private"),
    }
)

_NO_SECRET_LAST: Final = frozenset(
    """
    age alg algo algorithm arn bits budget cache class col column command count default dir directory duration enabled
    encoding endpoint env expiration expires expiry field file filename folder format header helper host hours id idx
    index interval jar kind label len length level limit max method minutes mode name names option options param path
    paths policy port prefix prompt provider realm region required retries scheme scope scopes seconds server service
    size source splitter store suffix through timeout ttl type types uri url usage user username var version window
    """.split()  # noqa: SIM905 - as words they are read, as a list they are not
)
"""What may follow a secret's name to name something about it."""

_NO_SECRET_BEFORE_KEY: Final = frozenset(
    {"public", "primary", "foreign", "sort", "partition", "hot", "short", "group", "cache", "index", "row", "host"}
)

WORKING_DIRECTORY: Final = "PWD"
"""A shell's variable for its directory; some programs take a password under the same name."""

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_JOINT: Final = re.compile(r"[^A-Za-z0-9]+")

MAX_NAME_CHARS: Final = 128
"""Of a name that is looked at; a longer one is none."""


def secrecy_of(name: str) -> Secrecy:
    """How sure `name` is that its value is secret; the dashes of an option do not count."""
    if not name or len(name) > MAX_NAME_CHARS or name == "OLDPWD":
        return Secrecy.NONE
    words = [word.lower() for part in _JOINT.split(name) for word in _HUMP.split(part) if word]
    if not words:
        return Secrecy.NONE
    last = words[-1].rstrip("0123456789") or words[-1]
    if last in _NO_SECRET_LAST and len(words) > 1 and words[-2:] != ["session", "id"]:
        return Secrecy.NONE
    joined = "_".join([*words[:-1], last])
    # `dbpass`, `PGPWD`; yet `bypass` and `compass` are words of their own.
    glued = last.endswith(("pwd", "pass")) and last not in {"bypass", "compass", "encompass", "overpass", "underpass"}
    if _CERTAIN_PARTS.search(joined) or last in _CERTAIN_LAST or glued:
        return Secrecy.CERTAIN
    if last in {"key", "keys"} and len(words) > 1 and words[-2] in _NO_SECRET_BEFORE_KEY:
        return Secrecy.NONE
    return Secrecy.LIKELY if _LIKELY_PARTS.search(joined) or last in _LIKELY_LAST else Secrecy.NONE


def is_secret_name(name: str) -> bool:
    """Whether what is called `name` is probably secret."""
    return secrecy_of(name) is not Secrecy.NONE


Span = tuple[int, int]
TOKENS: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:gh[opsur]_\w{8,}|github_pat_\w{8,}|gl[a-z]{2,6}-[\w-]{10,}"
    r"|sk-[\w-]{8,}|(?:sk|pk|rk)[-_](?:live|test|prod|ant|proj|or|lf)[-_][\w-]{8,}|whsec_[\w/+=]{8,}"
    r"|xox[a-z]-[\w-]{8,}|xapp-[\w-]{8,}|A(?:KIA|SIA|GPA|IDA|ROA|NPA|NVA|PKA)[0-9A-Z]{8,}|AIza[\w-]{16,}|ya29\.[\w-]{8,}"
    r"|GOCSPX-[\w-]{8,}|1//0[\w-]{16,}|eyJ[\w-]{6,}(?:\.[\w-]*){0,4}|npm_\w{8,}|hf_\w{8,}|ntn_\w{8,}|secret_\w{16,}"
    r"|pypi-[\w-]{16,}|do[opr]_v1_\w{8,}|shp(?:at|ss|ca|pa)_\w{8,}|SG\.[\w-]{8,}\.[\w-]{8,}|sq0[a-z]{3}-[\w-]{8,}"
    r"|lin_(?:api|oauth)_\w{8,}|figd_[\w-]{8,}|ph[cx]_\w{16,}|r8_\w{16,}|gsk_\w{8,}|xai-\w{8,}|pplx-\w{8,}|tvly-[\w-]{8,}"
    r"|nvapi-[\w-]{8,}|hv[sbr]\.[\w-]{8,}|AT[AC]TT3[\w=-]{8,}|dckr_pat_[\w-]{8,}|glsa_\w{8,}|sntry[su]_[\w=+/]{8,}"
    r"|NRAK-\w{8,}|PMAK-[\w-]{8,}|rubygems_\w{8,}|tskey-[\w-]{8,}|ops_eyJ\w{8,}|key-[0-9a-f]{32}|EAA[A-Za-z0-9]{24,}"
    r"|AGE-SECRET-KEY-\w{8,}|\d{8,10}:AA[\w-]{30,}|[MNO][\w-]{22,27}\.[\w-]{6,7}\.[\w-]{27,}"
    r"|qd_[\w-]{32,})"
)
"""What the tokens of well-known services begin with; and ours."""

KEY_BLOCK: Final = re.compile(
    r"-----BEGIN (?!CERTIFICATE|PUBLIC)[A-Z ]{1,40}-----(?:(?!-----END ).)*(?:-----END [A-Z ]{1,40}-----)?", re.DOTALL
)

REVISIONS: Final = frozenset(
    {"rev", "revision", "commit", "sha", "sha1", "sha256", "sha512", "ref", "hash", "digest", "checksum", "integrity"}
    | {"tag", "branch", "version", "tree", "blob", "raw", "from", "to", "base", "head", "since", "until"}
)
"""Names, and steps of paths, after which a long hexadecimal number is a revision or a checksum."""

ID_NAME: Final = re.compile(
    r"(?i)(?:^|[-_.])(?:id|ids|uuid|guid|project|workspace|tenant|org|organization|account|team|client)$|Id$"
)
"""Names whose values name something, in whatever letters: no secret as such."""

UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
HEX: Final = re.compile(r"[0-9a-fA-F]{20,}")
_RUN: Final = re.compile(r"(?<![A-Za-z0-9_+=-])[A-Za-z0-9_+=-]{16,}")
_SLASHED_RUN: Final = re.compile(r"(?<![\w/+.@~:-])[A-Za-z0-9+/]{36,}={0,2}(?![\w/+.])")
_WORDLIKE: Final = re.compile(
    r"[A-Z]?[a-z]{2,20}|[A-Z]{2,12}|\d{1,8}|[A-Za-z]|v\d{1,4}|[A-Za-z]{1,4}\d{1,4}|\d{1,4}[A-Za-z]{1,3}"
)
_SEGMENT: Final = re.compile(r"[^-_+=/.]+")
_SAME_KIND: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")

SMALL: Final = re.compile(
    r"-?\d{0,8}(?:\.\d{0,4})?[a-zA-Z%]{0,2}|true|false|null|none|nil|yes|no|on|off|auto|default", re.IGNORECASE
)
"""A number, perhaps with its unit, a switch, or nothing."""

EMPTY: Final = re.compile(r"|null|none|nil|true|false", re.IGNORECASE)

_WORD: Final = re.compile(r"[A-Za-z]{1,20}|\d{1,12}|\w{1,6}")
_JOINED: Final = re.compile(r"[-_.:@+/, ]")
_PATH: Final = re.compile(r"(?:~[\w-]{0,32}|\.{1,2}|[A-Za-z]:(?=[\\/]))?(?:[/\\][^/\\\0\n]{0,255}){1,64}|~|\.{1,2}")

MAX_ORDINARY_CHARS: Final = 64
"""Longer texts are no words, numbers or names of hosts."""


def is_ordinary_word(value: str) -> bool:
    """Whether a value is what messages are full of: a word, a number, a switch, a path or several, a host."""
    if SMALL.fullmatch(value) or is_path(value) or (":" in value and all(map(is_path, value.split(":")))):
        return True
    if len(value) > MAX_ORDINARY_CHARS or TOKENS.search(value):
        return False
    return all(_WORD.fullmatch(part) for part in _JOINED.split(value) if part)


def is_path(value: str) -> bool:
    """Whether `value` is a path of a file system, as programs are given them."""
    return _PATH.fullmatch(value) is not None and TOKENS.search(value) is None


def is_absolute_path(value: str) -> bool:
    """Return whether `value` is an absolute path, as in a shell's `PWD`."""
    return is_path(value) and (value.startswith("/") or value[1:2] == ":")


def random_spans(text: str) -> Iterator[Span]:
    """Texts that only chance writes."""
    for found in _RUN.finditer(text):
        run, start = found[0], found.start()
        name, equals, value = run.partition("=")
        if equals and value.strip("="):
            # `--opt=value` in a text: the name is none of it.
            run, start = value, start + len(name) + 1
        before = text[max(0, start - 16) : start]
        if UUID.fullmatch(run):
            label = re.search(r"([\w-]+)[=: \"']{1,4}$", before)
            if before.endswith("/") or (label is not None and ID_NAME.search(label[1])):
                continue
            yield start, start + len(run)
        elif is_random(run) and not _is_revision(run, before):
            yield start, start + len(run)
    for found in _SLASHED_RUN.finditer(text):
        run = found[0]
        has_all = any(c.islower() for c in run) and any(c.isupper() for c in run) and any(c.isdigit() for c in run)
        if has_all and "/" in run and not any(_is_word(part) for part in run.split("/") if len(part) > 3):
            yield found.span()


def _is_revision(run: str, before: str) -> bool:
    """Return whether a long hexadecimal number is a commit or a checksum, by what precedes it."""
    if not HEX.fullmatch(run):
        return False
    if re.search(r"(?i)(?:sha\d{0,3}|md5|blake2b?)[:=-]$|[@#]$", before):
        return True
    label = re.search(r"([A-Za-z]+\d{0,3})[=:/ \"']{1,4}$", before)
    return label is not None and label[1].lower() in REVISIONS


def _is_word(part: str) -> bool:
    return (
        all(_WORDLIKE.fullmatch(hump) for hump in _SAME_KIND.findall(part))
        and len(_SAME_KIND.findall(part)) <= 1 + len(part) // 4
    )


def is_random(run: str) -> bool:
    """Whether chance wrote it: long, of letters and digits that change places too often for words."""
    longest = max(_SEGMENT.findall(run), key=len, default="")
    if len(longest) < 16:
        # Several middling pieces, each with letters and digits mixed up.
        pieces = [piece for piece in _SEGMENT.findall(run) if len(piece) >= 6 and not _is_worded(piece)]
        return sum(map(len, pieces)) >= 18 and sum(map(len, pieces)) >= 0.6 * len(run)
    if longest.isdigit():
        return False
    if HEX.fullmatch(longest):
        return len(longest) >= 24 and not longest.isalpha()
    return not _is_worded(longest)


def _is_worded(piece: str) -> bool:
    """Return whether a piece is made of words and numbers: few changes between small letters, capitals and digits."""
    humps = _SAME_KIND.findall(piece)
    words = sum(
        len(hump) for hump in humps if (hump.isalpha() and len(hump) >= 4) or (hump.isdigit() and len(hump) >= 8)
    )
    if len(humps) <= 3 and not (any(hump.isdigit() for hump in humps) and len(piece) >= 24 and words < len(piece) // 2):
        return words * 2 >= len(piece) or len(piece) <= 8
    return words >= 0.7 * len(piece)


URL: Final = re.compile(r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]{0,30})://([^\s\"'<>`]+)")
_LOGIN: Final = re.compile(r"(?<![\w/.@:])([^\s/@:=\"'(){}]{1,64}):([^\s/@\"']{1,256})@(?=[\w\[])")
_NO_LOGINS: Final = frozenset(
    {"npm", "file", "link", "workspace", "git", "github", "gist", "jsr", "node", "docker", "pypi"}
)
_QUERY_PAIR: Final = re.compile(r"[?&#;]([^=&#;?\s]{1,64})=([^&#;\s]*)")
_KEY_QUERIES: Final = frozenset(
    {"code", "state", "k", "t", "s", "p", "u", "h", "hash", "access", "ticket", "assertion", "user"}
)
"""Parameters whose short names hold secrets in URLs, and mean nothing elsewhere."""

_HOOKS: Final = re.compile(r"(?i)(?:^|[._-])(?:hooks?|webhooks?)(?:[._-]|$)")
_HOOK_STEPS: Final = frozenset({"hook", "hooks"})
"""Steps of a URL's path behind which the rest is a key; others are names of secrets anyway, as `webhook` is."""

_LOGIN_SCHEMES: Final = frozenset({"ssh", "git+ssh", "sftp", "scp", "git", "rsync", "svn+ssh", "ssh+git"})
"""Where a user alone is usual, and no secret."""

_DATABASES: Final = frozenset(
    {"postgres", "postgresql", "mysql", "mariadb", "mongodb", "mongodb+srv", "redis", "rediss", "amqp", "amqps"}
    | {"mssql", "sqlserver", "clickhouse", "neo4j", "bolt", "snowflake", "oracle", "cockroachdb", "nats", "ldap"}
    | {"ldaps"}
)


def origin_of(url: str) -> str:
    """The scheme, host and port of a URL: what of it may stand in any message."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "the URL"
    if not parts.scheme or not host:
        return "the URL"
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + (f":{port}" if port is not None else "")


def only_origins(text: str) -> str:
    """`text` with each URL in it cut to its origin."""
    return URL.sub(lambda found: origin_of(found[0].rstrip(".,;:)]}")), text) if "://" in text else text


def login_spans(text: str) -> Iterator[Span]:
    """Users and passwords before hosts."""
    if "@" not in text:
        return
    for found in URL.finditer(text):
        yield from _userinfo_spans(found[1].lower(), found[2], found.start(2))
    for found in _LOGIN.finditer(text):
        if found[1].lower() not in _NO_LOGINS and not text.startswith(("sha256:", "sha512:"), found.end()):
            yield found.span(2)


def _userinfo_spans(scheme: str, rest: str, start: int) -> Iterator[Span]:
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    at = authority.rfind("@")
    if at < 0:
        _, colon, port = authority.rpartition(":")
        is_http = scheme in {"http", "https"} and not (colon and port and not port.isdigit() and "]" not in port)
        # A password with a slash in it that nobody escaped.
        at = -1 if is_http or (not colon and scheme not in _DATABASES) else rest.rfind("@")
        if colon and port.isdigit() and scheme not in _DATABASES:
            at = -1
    if at < 0:
        return
    user, colon, _ = rest[:at].partition(":")
    if colon:
        if user and not is_ordinary_word(user):
            yield start, start + len(user)
        if at > len(user) + 1:
            yield start + len(user) + 1, start + at
    elif user and not (scheme in _LOGIN_SCHEMES and is_ordinary_word(user)):
        yield start, start + at


def url_spans(text: str) -> Iterator[Span]:
    """The secrets in the paths, queries and fragments of URLs."""
    for found in URL.finditer(text):
        start, rest = found.start(2), found[2]
        cut = min([len(rest), *(place for mark in "?#" if (place := rest.find(mark)) >= 0)])
        host, _, path = rest[:cut].partition("/")
        yield from _path_spans(host.rpartition("@")[2], path, start + len(host) + 1)
        for pair in _QUERY_PAIR.finditer(rest, cut):
            name, value = pair[1], pair[2]
            is_key = secrecy_of(name) or name.lower() in _KEY_QUERIES
            if value and not (SMALL.fullmatch(value) if is_key else _is_tame(name, value)):
                yield start + pair.start(2), start + pair.end(2)
        bare = rest[cut + 1 :]
        if bare and "=" not in bare and not is_ordinary_word(bare):
            yield start + cut + 1, start + len(rest)


def _path_spans(host: str, path: str, start: int) -> Iterator[Span]:
    steps = path.split("/")
    is_hook = _HOOKS.search(host) is not None
    after = ""
    for place, step in enumerate(steps):
        lower = step.lower()
        if step and (is_hook or after in _HOOK_STEPS or secrecy_of(after)) and not _is_word_step(step):
            # What follows belongs to the key.
            yield start, start + len("/".join(steps[place:]))
            return
        revision = step.rpartition("@")[2]
        is_revision = HEX.fullmatch(revision) is not None and (revision != step or after in REVISIONS)
        if (
            step
            and not is_revision
            and (UUID.fullmatch(step) or is_random(step) or (lower.startswith("bot") and ":" in step))
        ):
            yield start, start + len(step)
        start += len(step) + 1
        after = lower if step else after


def _is_word_step(step: str) -> bool:
    """Return whether a step of a URL's path is a word, as `catch` and `v1`; never a number or a name in capitals."""
    return re.fullmatch(r"[a-z]{1,16}|v\d", step) is not None and not is_random(step)


def _is_tame(name: str, value: str) -> bool:
    """Return whether the value of a URL's parameter, whose name says nothing, is a word or a number."""
    if UUID.fullmatch(value):
        return ID_NAME.search(name) is not None
    return is_ordinary_word(value) and len(value) <= 24
