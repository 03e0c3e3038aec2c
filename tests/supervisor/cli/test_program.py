"""Errors become a line and an exit code; nobody sees a traceback."""

import errno
import re
import resource
import shlex
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from support.command_line import Said
from support.config.places import use_places, write_config
from support.processes.running import loaded_by

from quarterdeck.cli.commands import ENTRIES, OTHER_WORDS, PROGRAM, examples_of
from quarterdeck.cli.exits import MEANINGS, CommandError, ExitCode
from quarterdeck.cli.process import InterruptedBySignal, OutputError
from quarterdeck.cli.program import hoist_state_dir, make_program, warm_up
from quarterdeck.cli.run import tools
from quarterdeck.fleet.workers import interpreters
from quarterdeck_protocol.identity import CLIENT_VERSION


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def ask(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(tools, "ask", ask)


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (
            CommandError(ExitCode.NOT_FOUND, "no such \x1b tool", "look again"),
            3,
            "error[not_found]: no such \\x1b tool\n  fix: look again\n",
        ),
        (InterruptedBySignal(signal.SIGINT), 130, ""),
        (InterruptedBySignal(signal.SIGTERM), 143, ""),
        (InterruptedBySignal(signal.SIGHUP), 129, ""),
        (KeyboardInterrupt(), 130, ""),
        (ExceptionGroup("g", [OutputError(errno.ENOSPC)]), 74, ""),
        (LookupError("lost"), 70, "LookupError: lost"),
        (ExceptionGroup("g", [ExceptionGroup("h", [LookupError("lost")])]), 70, "LookupError: lost"),
    ],
)
def test_every_ending_has_its_code_and_its_words(
    monkeypatch: pytest.MonkeyPatch, said: Said, error: BaseException, code: int, says: str
) -> None:
    """A script could not tell what happened, or a user would see a traceback."""
    fail_with(monkeypatch, error)
    out, err = said(code, "tools", "--config", "mcp.json")
    assert out == ""
    assert says in err
    assert "Traceback" not in err


WRONG: dict[str, int] = {
    "nonsense": 2,
    "--nonsense": 2,
    "--state-dir": 2,
    "ps --nonsense": 2,
    "ps --log-level loud": 2,
    "call": 2,
    "call a b c": 2,
    "call a__b [1] -c FILE": 2,
    "call a__b { -c FILE": 2,
    "call zz__b -c FILE": 3,
    "call a__b --profile wrok": 2,
    "tools --tools read": 2,
    "tools --profile all --workspace /no/such/folder": 2,
    "tools --profile all --tools nothing": 2,
    "tools -c /no/such/file": 2,
    "restart zz -c FILE": 3,
    "restart": 2,
    "logs zz -c FILE": 3,
    "logs a -n x": 2,
    "inspect zz -c FILE": 3,
    "serve -c FILE --settle x": 2,
    "serve -c FILE --settle -1": 2,
    "serve -c FILE --no-token": 2,
    "serve -c FILE --http a:b": 2,
    "serve -c FILE --http 0.0.0.0:0": 2,
    "serve -c FILE --http 192.0.2.1:0 --allow-remote": 2,
    "serve -c FILE --http --allow-host https://a": 2,
    "serve -c FILE --locked": 3,
    "ledger log --kind nonsense": 2,
    "ledger log --since nonsense": 2,
    "ledger log": 3,
    "ledger verify": 3,
    "ledger import /no/such/file": 2,
    "trust diff zz -c FILE": 3,
    "trust approve": 2,
    "trust block a -c FILE": 2,
    "trust block a none -c FILE": 3,
    "link nonsense": 2,
    "link": 2,
    "link cursor": 3,
    "config import nonsense": 3,
    "allow zz -c FILE": 3,
    "allow r -c FILE": 2,
    "allow t -c FILE": 2,
    "quarantine restore NONE": 3,
    "quarantine remove NONE": 3,
    "seals show NONE": 3,
    "seals verify NONE": 3,
    "seals remove NONE": 3,
    "secret remove NONE": 3,
    "secret set bad/name": 2,
    "checkpoint restore n1 --workspace FOLDER": 3,
    "purge a --all": 2,
    "purge --ledger": 2,
    "lock --check -c FILE --file /no/such/file": 3,
    "sandbox run --preset nope -- ls": 2,
    "sandbox run --network nope -- ls": 2,
    "sandbox run --limit nope -- ls": 2,
    "sandbox run --limit nope=1 -- ls": 2,
    "sandbox run --tier nope -- ls": 2,
    "sandbox run --env NO_SUCH_VARIABLE -- ls": 2,
    "sandbox run --policy /no/such/file -- ls": 2,
    "explain nonsense": 3,
}
"""Wrong command lines, and the exit codes."""

LIBRARY_WORDS = (
    "Value error",
    "Input should",
    "Invalid value",
    "Errno",
    "Expected `",
    "Expecting",
    "range",
    "Traceback",
)
"""What only a library says."""


@pytest.mark.parametrize(("line", "code"), WRONG.items(), ids=WRONG)
def test_every_wrong_command_line_ends_in_an_error_and_a_fix(
    line: str, code: int, said: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kept_descriptor_limit: None
) -> None:
    """A user would know what is wrong and not what to do, or read the words of a library."""
    for name in ("CONFIG", "STATE_DIR", "RUNTIME_DIR"):
        monkeypatch.delenv(f"QUARTERDECK_{name}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    use_places(monkeypatch, tmp_path)
    monkeypatch.chdir(tmp_path)
    rows = {
        "a": {"command": "true"},
        "r": {"url": "http://127.0.0.1:9/mcp"},
        "t": {"command": "true", "sandbox": {"preset": "trusted"}},
    }
    write_config(tmp_path / "mcp.json", **rows)
    words = [{"FILE": "mcp.json", "FOLDER": str(tmp_path)}.get(word, word) for word in line.split()]
    out, err = said(code, *words)
    assert out == ""
    lines = err.splitlines()
    [error] = [each for each in lines if each.startswith("error[")]
    at = lines.index(error)
    assert lines[at + 1].startswith("  fix: ")
    assert len(lines[at + 1]) > len("  fix: ")
    assert len(lines) == at + 2
    assert "event" not in err, "nothing was said or started before"
    assert not any(leak in err for leak in LIBRARY_WORDS)


@pytest.fixture
def kept_descriptor_limit() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("arguments", [["tools"], ["call", "a__b"], ["restart", "a"], ["logs", "a"], ["serve"]])
def test_a_command_without_a_configuration_says_how_to_name_one(
    arguments: list[str], said: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A new user would not know what to do, or be told of an option that the command lacks."""
    monkeypatch.delenv("QUARTERDECK_CONFIG", raising=False)
    monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", str(tmp_path / "run"))
    err = said(ExitCode.USAGE, *arguments).err
    assert "--config FILE" in err
    assert ("--profile" in err) == (arguments[0] in ("tools", "call", "serve"))


def test_help_names_every_command_and_exit_code_alike_by_both_ways(said: Said) -> None:
    """What is not documented does not exist, and one of two ways would go out of date."""
    out = said(0, "--help").out
    panels = dict(block.split("\n", 1) for block in out.split("\n\n") if "\n" in block)
    for entry in ENTRIES:
        assert f"  {entry.name} " in panels[entry.panel] or f"\n  {entry.name} " in panels[entry.panel]
    out = said(0, "help", "exit-codes").out
    assert all(f"{code:d}  {meaning[:20]}" in out for code, meaning in MEANINGS.items())
    first = said(0, "help", "trust", "list").out
    assert first == said(0, "trust", "list", "--help").out
    assert said(0, "--version").out == f"quarterdeck {CLIENT_VERSION}\n"


def leaves() -> "dict[str, Any]":
    program: Any = make_program()
    found = {}
    for name, command in program.commands.items():
        inner = getattr(command, "commands", None)
        found |= {f"{name} {each}": leaf for each, leaf in inner.items()} if inner else {name: command}
    return found


def test_every_help_has_examples_that_parse_and_no_type_of_python(said: Said) -> None:
    """A user would copy a line that is refused, or read `<list[str]>`."""
    for path, command in leaves().items():
        text = said(0, *path.split(), "--help").out
        assert "<bool>" not in text
        assert "list[" not in text
        assert "VALUE" not in re.sub(r"=VALUE", "", text)
        examples = examples_of(path)
        assert len(examples) >= 2, path
        for line, what in examples:
            assert line.split()[0] in text
            assert what in " ".join(text.split())
            words = shlex.split(re.search(rf"quarterdeck {path}[^|<>)]*", line)[0])[1 + len(path.split()) :]
            given = hoist_state_dir([word for word in words if word != "…"])
            at = 2 if given[:1] == ["--state-dir"] else 0
            taken = command.make_context(path, given[at:]).params.get("command") or ()
            # What stands behind a server's id would be taken for a command line's.
            assert "--" in given or not any(str(word).startswith("-") for word in taken), line


@pytest.mark.process
def test_only_the_module_of_the_command_that_runs_is_imported() -> None:
    """Each command would wait for the imports of all the others."""
    loaded = loaded_by("from quarterdeck.cli.program import run; run(['status', '-h'])")
    assert loaded.isdisjoint(others := {"rich", "anyio", "mcp", "pydantic", "quarterdeck.cli.run.serve"}), (
        loaded & others
    )


ASKS: Final = """
from quarterdeck.cli import source
from quarterdeck.daemon.control.protocol import FaultView, ServerList, ServerView, ToolList, ToolView
from msgspec import Raw
server = ServerView("a", "faulted", "stdio", 0, None, None, None, None, 0, None, FaultView("k", "c", "m", "r", "d"))
tool = ToolView("a__b", "a", "what", Raw(b"{}"))
answers = {"Ps": ServerList((server,)), "Tools": ToolList((tool,), (server,))}
source.find_serving = lambda *_, **__: "a directory"
source.ask_serving = lambda _, request: answers[type(request).__name__]
from quarterdeck.cli.program import run
"""
"""Has a serve answer `ps` and `tools`."""

SLOW_TO_LOAD: Final = {"asyncio", "concurrent", "email", "multiprocessing", "sqlite3", "ssl", "subprocess", "zoneinfo"}
"""Of the standard library; each costs as much as all that these commands do."""


@cache
def loaded_by_nothing() -> set[str]:
    return loaded_by("")


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "rooms", "others"),
    [
        (["--help"], {"cli", "common"}, {"msgspec"}),
        (["--version"], {"cli", "common"}, {"msgspec"}),
        (["ps"], {"cli", "common", "config", "daemon"}, {"click", "msgspec", "platformdirs", "rich"}),
        (["tools"], {"cli", "common", "config", "daemon"}, {"click", "msgspec", "platformdirs", "rich"}),
    ],
)
def test_what_answers_at_once_loads_no_room_and_no_library_that_it_does_not_need(
    arguments: list[str], rooms: set[str], others: set[str]
) -> None:
    """Each look at the servers would cost a second of processor time, which a script does in a loop."""
    loaded = loaded_by(
        f"{ASKS if rooms > {'cli', 'common'} else 'from quarterdeck.cli.program import run'}\nrun({arguments})"
    )
    bare = loaded_by_nothing()
    ours = {name.split(".")[1] for name in loaded if name.startswith("quarterdeck.")}
    assert ours == rooms
    libraries = {name.partition(".")[0] for name in loaded - bare} - sys.stdlib_module_names
    # What msgspec and rich try to load, where it is installed, is theirs.
    assert libraries - {"quarterdeck", "quarterdeck_protocol", "quarterdeck_sandbox", "typing_extensions"} == others
    assert not SLOW_TO_LOAD & {name.partition(".")[0] for name in loaded - bare}
    assert "quarterdeck.cli.run.serve" not in loaded
    assert "logging" not in loaded or arguments not in (["--help"], ["--version"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["pss"], "there is no command 'pss': did you mean 'ps'?"),
        (["frobnicate"], "there is no command 'frobnicate'\n"),
        (["--nonsense"], "there is no option --nonsense before a command"),
        (["--state-dir"], "--state-dir needs a directory"),
        (["trust", "nonsense"], "nonsense"),
        *(([word, "any"], f"there is no command {word!r}\n  fix: `quarterdeck ") for word in OTHER_WORDS),
    ],
)
def test_a_command_that_is_not_there_is_told_with_what_is_near(arguments: list[str], says: str, said: Said) -> None:
    """A typing error would end in a page of help, or in a guess."""
    out, err = said(ExitCode.USAGE, *arguments)
    assert out == ""
    assert says in err
    assert err.startswith("error[usage]: ")
    assert err.count("\n  fix: ") == 1


def test_the_commands_that_stand_for_other_tools_names_are_all_there() -> None:
    """A user who types `install` would be sent to a command that is not there."""
    groups = {each.name: make_program((each,)).commands[each.name] for each in ENTRIES}
    for word, fix in OTHER_WORDS.items():
        assert word not in groups
        named = re.findall(rf"`{PROGRAM} (\w+)(?: (\w+))?", fix)
        assert named
        for command, sub in named:
            assert command in groups
            if (below := getattr(groups[command], "commands", None)) is not None:
                assert sub in below


@pytest.mark.process
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete_commands_and_options(shell: str, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users of a shell would have to type every name."""
    assert "_QUARTERDECK_COMPLETE" in said(0, "completion", shell).out
    monkeypatch.setenv("_QUARTERDECK_COMPLETE", "bash_complete")
    for words, wanted in (
        ("quarterdeck le", "ledger"),
        ("quarterdeck ledger ve", "verify"),
        ("quarterdeck ps --js", "--json"),
    ):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        assert f"plain,{wanted}" in said(0).out.split()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ([], []),
        (["serve"], ["serve"]),
        (["--state-dir", "/s", "serve"], ["--state-dir", "/s", "serve"]),
        (["serve", "--state-dir", "/s", "--http"], ["--state-dir", "/s", "serve", "--http"]),
        (["ledger", "log", "--state-dir=/s"], ["--state-dir=/s", "ledger", "log"]),
        (["sandbox", "run", "--", "x", "--state-dir", "/s"], ["sandbox", "run", "--", "x", "--state-dir", "/s"]),
        (["ps", "--state-dir"], ["--state-dir", "ps"]),
        (["ps", "--state-dir", "/a", "--state-dir", "/b"], ["--state-dir", "/a", "--state-dir", "/b", "ps"]),
    ],
)
def test_a_state_directory_may_be_named_anywhere(typed: list[str], meant: list[str]) -> None:
    """A user would have to know on which side of which word it goes; or a sandboxed program would lose its own."""
    assert hoist_state_dir(typed) == meant


def test_a_state_directory_that_is_named_is_the_one_that_is_used(
    tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who keeps two decks apart would write into the other one's record."""
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "first"))
    assert str(tmp_path / "second") in said(ExitCode.NOT_FOUND, "ledger", "log", "--state-dir", tmp_path / "second").err


def test_the_zygote_of_a_serve_is_its_first_start_where_servers_cannot_sleep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first list would wait for one import after the other, or sleeping servers cost a process for nothing."""
    use_places(monkeypatch, tmp_path)
    monkeypatch.delenv("QUARTERDECK_OWN", raising=False)
    started: list[str] = []
    monkeypatch.setattr(interpreters, "start_zygote_early", lambda: started.append("zygote"))
    known = tmp_path / "known"
    (known / "ledger").mkdir(parents=True)
    for words, starts in (
        ("serve --own", True),
        ("serve --http -c mcp.json", True),
        ("serve", False),  # by the daemon
        ("serve --http --help", False),
        ("tools --own", False),
        (f"serve --own --state-dir {known}", False),
        ("serve --own --state-dir", False),  # an error, which is told later
    ):
        warm_up(words.split())
        assert started == ["zygote"] * starts, words
        started.clear()
