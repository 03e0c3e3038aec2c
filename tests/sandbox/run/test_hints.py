"""Hints from the last words of a process: true, few, and found in bounded time."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from sandbox.homes import make_home
from support.sandbox.bare_confinements import bare_confinement

from quarterdeck_protocol.policy_values import NetworkMode, PolicyValues
from quarterdeck_sandbox.policy.confinement import Confinement
from quarterdeck_sandbox.policy.mounts import is_within_any
from quarterdeck_sandbox.program.needed_paths import NamedPath
from quarterdeck_sandbox.run.hints import MAX_HINTS, MAX_PATHS, MAX_TEXT, Outside, find_denial, hints_in
from quarterdeck_sandbox.run.home_links import link_home

THERE = {
    "/home/u/.aws/credentials",
    "/home/u/proj",
    "/home/u/my files/a.txt",
    "/home/u/.ssh/id_rsa",
    "/home/u/.netrc",
    "/var/run/docker.sock",
    "/usr/bin/git",
}
OUTSIDE = Outside(
    visible=lambda path: is_within_any(path, ("/usr", "/state/home", "/data")),
    exists=THERE.__contains__,
    network=NetworkMode.NONE,
    user_home="/home/u",
    home="/state/home",
    closed=("/data/mcp.json",),
)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '/home/u/.aws/credentials'",
            '/home/u/.aws/credentials exists but is hidden; add "grants": ["aws"]',
        ),
        (
            "Error: ENOENT: no such file or directory, open '/state/home/.aws/credentials'",
            '/home/u/.aws/credentials exists but is hidden; add "grants": ["aws"]',
        ),
        (
            "Load key '/home/u/.ssh/id_rsa': No such file or directory",
            '/home/u/.ssh/id_rsa exists but is hidden; add "grants": ["ssh-agent"] to sign without the file, or "read"',
        ),
        ("cannot open ~/.netrc:", '/home/u/.netrc exists but is hidden; add "read": ["/home/u/.netrc"] if it may see'),
        ("no such folder: /home/u/proj.", '/home/u/proj exists but is hidden; add "read": ["/home/u/proj"]'),
        ("open('/home/u/my files/a.txt')", '/home/u/my files/a.txt exists but is hidden; add "read"'),
        ("url file:///home/u/proj", '/home/u/proj exists but is hidden; add "read"'),
        ("Cannot connect to unix:///var/run/docker.sock. Is it", "/var/run/docker.sock exists but is hidden; it"),
        (
            "OSError: [Errno 30] Read-only file system: '/data/mcp.json'",
            "/data/mcp.json can only be read: quarterdeck or other programs trust what is there",
        ),
        (
            "OSError: [Errno 30] Read-only file system: '/data/out/x'",
            '/data/out/x can only be read; add "write": ["/data/out"]',
        ),
        ("can't start new thread", 'it may have met a limit; raise "limits": {"processes": …}'),
        ("fork: Resource temporarily unavailable", 'it may have met a limit; raise "limits": {"processes": …}'),
        ("Error: spawn /bin/sh EAGAIN", 'it may have met a limit; raise "limits": {"processes": …}'),
        ("FATAL ERROR: JavaScript heap out of memory", 'it may have met a limit; raise "limits": {"memory_bytes": …}'),
        ("OSError: [Errno 24] Too many open files", 'it may have met a limit; raise "limits": {"open_files": …}'),
        (
            "OSError: [Errno 28] No space left on device",
            'it may have met a limit; raise "limits": {"scratch_bytes": …}',
        ),
        (
            "socket.gaierror: [Errno -3] Temporary failure in name resolution",
            'a host could not be reached; add "network": ["HOST:PORT"], or use "network": "internet"',
        ),
        ("Unable to locate credentials", 'it may need "grants": ["aws"]'),
        ("*** Please tell me who you are.", 'it may need "grants": ["git-config"]'),
    ],
)
def test_what_was_missing_is_named_with_what_to_add(text: str, hint: str) -> None:
    """A user would have to guess what the policy lacks."""
    [found] = hints_in(f"starting\n{text}\nbye\n", OUTSIDE)
    assert found.startswith(hint)


def test_a_program_that_is_seen_without_its_project_is_said_to_be(tmp_path: Path) -> None:
    """A user who named the script alone would look for a mistake in it."""
    project = tmp_path / "home" / "proj"
    script = project / "build" / "index.js"
    script.parent.mkdir(parents=True)
    (project / "package.json").touch()
    outside = replace(
        OUTSIDE,
        visible=lambda path: path == str(script),
        exists=lambda path: path == str(script),
        user_home=str(tmp_path / "home"),
        named=(NamedPath(str(script)),),
    )
    hint = f'{script} is visible, but not all of its project; add "read": ["{project}"]'
    for text in ("Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'x'", "ModuleNotFoundError: No module named 'x'"):
        assert hints_in(text, outside) == (hint,)
    assert hints_in("SyntaxError: no", outside) == ()


def test_a_file_that_may_be_changed_alone_is_said_to_be() -> None:
    """A database could be read and never be written, and nobody know why."""
    lone = replace(OUTSIDE, lone_files=("/home/u/d/x.db",))
    hint = (
        '/home/u/d/x.db may be changed, but no file can be created beside it; add "write": ["/home/u/d"] in its place'
    )
    assert hints_in("sqlite3.OperationalError: unable to open database file", lone)[0] == hint
    assert hints_in("EROFS: read-only file system, open '/home/u/d/x.db.tmp'", lone)[0] == hint
    assert hints_in("all is well", lone) == ()


def test_what_a_variable_names_is_looked_at_though_no_text_says_it(tmp_path: Path) -> None:
    """A server that only says that it cannot start would be left to guessing."""
    folder = tmp_path / "home" / "m"
    folder.mkdir(parents=True)
    outside = replace(
        OUTSIDE,
        exists=lambda path: path == str(folder),
        user_home=str(tmp_path / "home"),
        named=(
            NamedPath(str(folder / "memory.json"), "MEMORY_FILE_PATH"),
            NamedPath("/usr/x"),
            NamedPath("/nowhere/x"),
        ),
    )
    [hint] = hints_in("it ended", outside)
    assert hint.startswith(f"MEMORY_FILE_PATH names {folder}/memory.json, which is not there, and its folder is hidden")
    assert hint.endswith(f'add "write": ["{folder}"]')


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("Error: getaddrinfo ENOTFOUND api.example.com", "api.example.com:443"),
        ("getaddrinfo EAI_AGAIN api.example.com", "api.example.com:443"),
        ("connect ECONNREFUSED 93.184.216.34:8443", "93.184.216.34:8443"),
        ("connect ECONNREFUSED 127.0.0.1:5432", "localhost:5432"),
        ("curl: (6) Could not resolve host: api.example.com", "api.example.com:443"),
        ("curl: (7) Failed to connect to api.example.com port 80 after 0 ms", "api.example.com:80"),
        ("HTTPSConnectionPool(host='api.example.com', port=443): Max retries", "api.example.com:443"),
        ("dial tcp: lookup api.example.com on 127.0.0.53:53", "api.example.com:443"),
        ("request for url (https://pypi.org/simple/x/)\n cause: dns error", "pypi.org:443"),
        ("fatal: unable to access 'http://git.example.com:3000/x': failed to lookup", "git.example.com:3000"),
    ],
)
def test_a_host_that_was_not_reached_is_named_as_the_policy_wants_it(text: str, entry: str) -> None:
    """A user would have to know how the policy writes hosts."""
    assert f'{entry} cannot be reached; add "network": ["{entry}"]' in hints_in(text, OUTSIDE)
    listed = replace(OUTSIDE, network=("other.example:443",))
    assert f'{entry} is not among the hosts that it may reach; add "network": ["{entry}"]' in hints_in(text, listed)
    assert not hints_in(text, replace(OUTSIDE, network=(entry,)))
    assert not hints_in(text, replace(OUTSIDE, network=NetworkMode.FULL))


def test_with_the_internet_only_this_machines_own_is_missing() -> None:
    """A server of the user's, on this machine, is not there by design."""
    internet = replace(OUTSIDE, network=NetworkMode.INTERNET)
    assert not hints_in("getaddrinfo ENOTFOUND api.example.com", internet)
    [hint] = hints_in("connect ECONNREFUSED ::1 127.0.0.1:5432\nconnect ECONNREFUSED 127.0.0.1:5432", internet)
    assert "localhost:5432 is the sandbox's own" in hint


def test_nothing_is_hinted_at_that_was_visible_or_is_not_there() -> None:
    """Hints would be noise."""
    assert not hints_in("/usr/bin/git: /home/u/nothing: /etc/none no such file; see https://home/u/proj", OUTSIDE)


def test_nobody_is_advised_to_show_the_machines_passwords() -> None:
    """A user who follows every hint would hand them to a server."""
    outside = replace(OUTSIDE, exists=lambda path: path == "/etc/shadow")
    [found] = hints_in("PermissionError: [Errno 13] Permission denied: '/etc/shadow'", outside)
    assert found == "/etc/shadow is hidden, as it should be: it holds passwords"


def test_a_grant_that_was_given_is_not_asked_for() -> None:
    """The user has done that already."""
    given_ = replace(OUTSIDE, env=frozenset({"AWS_CONFIG_FILE"}))
    assert not hints_in("Unable to locate credentials", given_)


def test_hints_are_few_and_each_is_said_once() -> None:
    """A flood would bury the first."""
    text = "\n".join(f"getaddrinfo ENOTFOUND h{number}.example" for number in range(100) for _ in range(2))
    hints = hints_in(text, OUTSIDE)
    assert len(hints) == len(set(hints)) == MAX_HINTS


@given(st.text(max_size=2000))
def test_no_text_breaks_it(text: str) -> None:
    """What a hostile server says last would take the dossier with it."""
    assert len(hints_in(text, OUTSIDE)) <= MAX_HINTS


@pytest.mark.parametrize(
    "piece", ["/", "'/", "/a", "a.", "host='", "ENOTFOUND ", "https://", "fork ", "dial tcp lookup ", "-", "a-", "/~"]
)
def test_a_text_made_for_it_holds_no_expression_up(piece: str) -> None:
    """A hostile server's last words would hold its worker up: one that backtracks would not end here."""
    text = "dns error " + piece * (200_000 // len(piece))
    assert len(hints_in(text, replace(OUTSIDE, exists=lambda _: False))) <= MAX_HINTS


@pytest.mark.parametrize(
    "text",
    [
        "npm error code ECOMPROMISED",
        "failed to set permissions for file `/state/home/x.so`: Operation not permitted (os error 1)",
        "Error: EPERM: operation not permitted, chmod '/state/home/x'",
    ],
)
def test_who_may_change_no_mode_is_told_why(text: str) -> None:
    """`npx` and `uvx` name a lock or a wheel, from which nobody would guess what is missing."""
    said = "it can change mode, owner and times of no file, not even of its own, as no filter can ask here: see"
    assert hints_in(text, replace(OUTSIDE, why_no_broker="no filter can ask here"))[0].startswith(said)
    assert not any("mode" in hint for hint in hints_in(text, OUTSIDE))


ALLOW = "quarterdeck allow s"


@pytest.fixture(scope="module")
def confined(tmp_path_factory: pytest.TempPathFactory) -> Confinement:
    """A server that may read `~/open`, with links in its home, beside what people have in theirs."""
    home = make_home(tmp_path_factory.mktemp("u"))
    for path in (
        "Documents/a b.md",
        "open/x",
        "proj/tool.py",
        "proj/.env",
        ".ssh/id_rsa",
        ".netrc",
        "snap/key",
        "a\x1bb",
    ):
        home.file(path)
    for folder in (".cache", ".config/quarterdeck"):
        (home.user / folder).mkdir(parents=True, exist_ok=True)
    plan = home.plan("/bin/sh")
    policy = PolicyValues(read=(str(home.user / "open"),))
    view = home.view(plan, read=list(policy.read))
    link_home(home.places, policy.read, None)
    plan = replace(plan, env={**plan.env, **view.env})
    made = bare_confinement(plan=plan, view=view, policy=policy, user_home=str(home.user), private=home.places.private)
    return replace(made, configuration=(str(home.user / ".config/quarterdeck"),))


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("ENOENT: no such file, open '~/Documents/a b.md'", "--read '~/Documents/a b.md'"),
        ("[Errno 13] Permission denied: 'HOME/Documents/a b.md'", "--read '~/Documents/a b.md'"),
        ("cannot list HOME/Documents", "--read ~/Documents"),
        ("it is not in HOME/open/x, but in ~/proj/tool.py", "--read ~/proj/tool.py"),
        ("ENOENT: no such file, open '~/Documents/new.md'", "--read ~/Documents"),
        ("EROFS: read-only file system, open 'HOME/open/x'", "--write ~/open"),
        ("EACCES: permission denied, open '~/open/x'", "--write ~/open"),
        *[(f"ENOENT: {path}", "") for path in ("~/open/gone", "~/gone/x", "HOME/own", "~/.cache/x", "HOME/.cache/x")],
        *[(f"EACCES: {path}", "") for path in ("~/.ssh/id_rsa", "~/.netrc", "~/snap/key", "~/proj/.env", "'~/a\x1bb'")],
        *[(f"EACCES: {path}", "") for path in ("~", "~/", "/", "/home", "/etc/shadow", "/var", "HOME", "STATE/ledger")],
        *[(f"EROFS: {path}", "") for path in ("/usr/bin/sh", "~/.config/quarterdeck/mcp.json", "/run/docker.sock")],
        ("all is well", ""),
    ],
)
def test_an_error_about_a_hidden_path_names_the_command_that_shows_it(
    confined: Confinement, text: str, option: str
) -> None:
    """A model would tell its user that there is no such file; or a server have keys offered to it."""
    user, home = confined.user_home, confined.plan.env["HOME"]
    error = text.replace("HOME", home).replace("STATE", confined.private[0]).replace("~", user)
    denial = find_denial(error, confined)
    if not option:
        assert denial is None
        return
    assert denial is not None
    hint = denial.hint(ALLOW)
    assert f"{ALLOW} {option.replace('~', user)}" in hint
    assert "\n" not in hint
    assert f": add {option.replace('~', user)} to its command" in denial.hint("")


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("getaddrinfo ENOTFOUND api.example.com", "api.example.com:443"),
        ("fetch failed: http://API.example.com/v1", "api.example.com:80"),
        ("HTTPSConnectionPool(host='x.example.org', port=8443)", "x.example.org:8443"),
        ("getaddrinfo ENOTFOUND listed.example", ""),
        *[
            (f"connect ECONNREFUSED {near}", "")
            for near in ("10.0.0.5:443", "localhost:80", "nas:445", "x.example:99999")
        ],
        ("see https://docs.example.com", ""),
    ],
)
def test_an_error_about_a_host_that_is_not_listed_names_the_command_that_adds_it(
    confined: Confinement, text: str, entry: str
) -> None:
    """A user would open the whole internet, or find no way; or add an address of their own network for a server."""
    assert find_denial(text, confined) is None, "only a list can lack a host"
    denial = find_denial(text, replace(confined, network=("listed.example:443",)))
    if not entry:
        assert denial is None
        return
    assert denial is not None
    assert str(denial) == f"network {entry}"
    assert denial.hint(ALLOW).endswith(f"To let it: {ALLOW} --host {entry}")
    assert f": add --network {entry} to its command" in denial.hint("")


def test_a_flood_of_paths_is_looked_at_in_part(confined: Confinement) -> None:
    """A hostile server's errors would hold its worker up."""
    hidden = f"{confined.user_home}/proj"
    some = "\n".join(f"/nowhere/{number}" for number in range(MAX_PATHS))
    assert find_denial(f"{some}\n{hidden}", confined) is None
    assert find_denial(f"{hidden}\n{some}", confined) is not None
    assert find_denial(hidden + " " * MAX_TEXT, confined) is None


def test_a_denial_is_of_the_exact_path_and_of_its_folder_only_if_it_is_not_there(confined: Confinement) -> None:
    """`suggest` would propose a folder for the sake of one file in it; or a path that a server made up."""
    user = confined.user_home
    for error, kept in [
        ("ENOENT: '~/Documents/a b.md'", "read ~/Documents/a b.md"),
        ("ENOENT: ~/Documents/new.md", "read ~/Documents"),
        (r'{"error": "no file matches \"~/proj/tool.py\""}', "read ~/proj/tool.py"),
        ("ENOENT: no such file or directory, mkdir '~/Documents/new'", "write ~/Documents"),
        ("ENOENT: no such file or directory, unlink '~/proj/tool.py'", "write ~/proj/tool.py"),
        ("Cannot create document: Directory ~/Documents does not exist", "write ~/Documents"),
        ("EROFS: ~/open/x", "write ~/open/x"),
        ("EROFS: '~/open'", "write ~/open"),
        ("EROFS: ~/open/new", "write ~/open"),
        ("EROFS: '~/open/.git/index.lock'", "write ~/open"),
        ("EROFS: '~/open/.git/hooks'", "write ~/open"),
        ("Lock at '~/open/.git/refs/heads/b.lock' could not be obtained", "write ~/open"),
    ]:
        assert str(find_denial(error.replace("~", user), confined)) == kept.replace("~", user)
