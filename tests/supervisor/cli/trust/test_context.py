"""What decisions are made on, and how they reach whoever writes the ledger."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from support.config.places import use_places, write_config
from support.ledger.histories import EVIL, NOW, fill, open_ledger, seen

from quarterdeck.cli.exits import CommandError, ExitCode
from quarterdeck.cli.source import Source
from quarterdeck.cli.trust import context
from quarterdeck.cli.trust.context import open_context, send
from quarterdeck.daemon.control.client import NoAnswerError, NotServingError
from quarterdeck.daemon.control.protocol import Answer, Decide, Decided, Refused, Request
from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.ledger.store.lease import Holder, take_lease
from quarterdeck.ledger.store.reader import LedgerReader
from quarterdeck.trust.configured_servers import scope_of
from quarterdeck.trust.judge.verdicts import Decision


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration of one server, whose tool `now` was changed by its author."""
    use_places(monkeypatch, tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "deck.json"
    write_config(path, time={"command": "true", "trust": "strict"})
    fill(tmp_path / "state", scope_of(path), days=2)
    return path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger"


def decision(config: Path, hash_: str = EVIL.hash) -> Decision:
    return Decision(scope_of(config), "time", ItemKey(Subject.TOOL, "now"), hash_)


def approved(directory: Path, config: Path) -> str:
    with LedgerReader.open(directory) as store:
        return store.book.entry(scope_of(config), "time").items[ItemKey(Subject.TOOL, "now")].approved


@pytest.fixture
def serve(directory: Path, config: Path) -> Iterator[Path]:
    """A serve that writes the ledger; its runtime directory."""
    runtime = directory.parent / "run"
    holder = Holder(pid=os.getpid(), digest="d", command="serve", runtime_directory=str(runtime))
    with take_lease(directory, holder):
        yield runtime


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer | Exception], list[tuple[Path, Request]]]:
    """Have whoever is asked answer this; what it was asked, and where."""

    def answer_with(answer: Answer | Exception) -> list[tuple[Path, Request]]:
        asked: list[tuple[Path, Request]] = []

        def ask(where: Path, request: Request) -> Answer:
            asked.append((where, request))
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(context, "ask", ask)
        return asked

    return answer_with


def test_a_decision_goes_through_the_serve_that_writes(
    config: Path, directory: Path, serve: Path, answers: Callable[[Answer], list[tuple[Path, Request]]]
) -> None:
    """An approval would count from the next start on, or two processes would write one ledger."""
    asked = answers(Decided())
    send([decision(config)])
    [(where, request)] = asked
    assert where == serve
    assert isinstance(request, Decide)
    assert msgspec.json.decode(request.decisions, type=list[Decision]) == [decision(config)]
    assert approved(directory, config) == NOW.hash


@pytest.mark.parametrize("answer", [Refused("stale", "look at it again"), NoAnswerError("look at it again")])
def test_a_serve_that_refuses_is_not_written_around(
    config: Path,
    directory: Path,
    serve: Path,
    answers: Callable[[Answer | Exception], list[tuple[Path, Request]]],
    answer: Answer | Exception,
) -> None:
    """A form that nobody looked at would be approved all the same."""
    answers(answer)
    with pytest.raises(CommandError, match="look at it again") as refused:
        send([decision(config)])
    assert refused.value.code is ExitCode.NO_ANSWER
    assert approved(directory, config) == NOW.hash


def test_a_serve_that_has_just_ended_is_followed_by_the_command(
    config: Path, directory: Path, answers: Callable[[Answer | Exception], list[tuple[Path, Request]]]
) -> None:
    """A user would be told of a process that is not there."""
    lease = take_lease(directory, Holder(pid=os.getpid(), digest="d", command="serve", runtime_directory="/gone"))
    asked = answers(NotServingError("gone"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "_write", lambda decisions: (lease.release(), REAL_WRITE(decisions)))
        send([decision(config)])
    assert len(asked) == 1
    assert approved(directory, config) == EVIL.hash


REAL_WRITE = context._write


def test_nothing_is_recorded_of_decisions_of_which_one_is_stale(config: Path, directory: Path) -> None:
    """A user would have approved half of what they saw."""
    with LedgerReader.open(directory) as store:
        before = store.head
    stale = decision(config, "0" * 64)
    with pytest.raises(CommandError, match="look at it again") as refused:
        send([decision(config), stale])
    assert refused.value.code is ExitCode.NO_ANSWER
    with LedgerReader.open(directory) as store:
        assert store.head == before


def test_servers_of_two_files_with_one_id_are_told_apart(config: Path, tmp_path: Path) -> None:
    """A decision about one would be recorded of the other."""
    other = tmp_path / "other.json"
    write_config(other)
    with open_ledger(tmp_path / "state") as store:
        store.append([seen(NOW, scope=scope_of(other)), seen(NOW, scope="/third.json")], {})
    with open_context(Source((config,))) as opened:
        assert opened.server("time").scope == scope_of(config)
    with open_context(Source(())) as opened:
        with pytest.raises(CommandError, match="several files configure a server 'time'") as refused:
            opened.server("time")
        files = (scope_of(config), scope_of(other), "/third.json")
        assert refused.value.remedy == f"name one: {' or '.join(f'-c {file}' for file in files)}"


def test_a_context_needs_no_ledger_and_makes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking would leave a directory in every home."""
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "none"))
    empty = tmp_path / "empty.json"
    write_config(empty)
    with open_context(Source((empty,))) as opened:
        assert opened.servers == ()
        assert list(opened.sightings()) == []
        assert opened.read(NOW.hash) is None
        with pytest.raises(CommandError, match="no server is configured or recorded") as refused:
            opened.server("time")
        assert refused.value.code is ExitCode.NOT_FOUND
    assert not (tmp_path / "none").exists()
