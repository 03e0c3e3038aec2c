"""What a server says, checked once more: what may be told of it, how our own log has it, and who is told."""

import pytest

from quarterdeck.fleet.exchange.news import MAX_SHOWN_CHARS, NewsWatchers, news_of, shown
from quarterdeck_protocol.link.frames import Log, Note, Updated
from quarterdeck_protocol.mcp.client.notes import MAX_NOTE_BYTES
from quarterdeck_protocol.mcp.jsonrpc import BodyError
from quarterdeck_protocol.offers import LogLine, News, ResourceUpdated, ServerNote

ME = frozenset({"door-1"})


def test_what_a_server_says_is_told_as_it_said_it_with_whose_it_is() -> None:
    """A client would not know which server speaks, or lose what we do not know."""
    assert news_of("fs", Log("error", "io"), b' {"n":1.0} ', ME) == LogLine("fs", "error", "io", b' {"n":1.0} ', ME)
    assert news_of("fs", Note("notifications/x"), b'{"k":[1.0]}', ME) == ServerNote(
        "fs", "notifications/x", b'{"k":[1.0]}', ME
    )
    assert news_of("fs", Note("notifications/x"), b"", ME) == ServerNote("fs", "notifications/x", b"", ME)
    assert news_of("fs", Updated("x:1"), b"", ME) == ResourceUpdated("fs", "x:1", ME)


@pytest.mark.parametrize("said", [Log("error", "io"), Note("notifications/x")])
@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"a":1}{"b":2}',
        b'{"a":1},"b":{}',
        b'1,"x":2',
        b'{"a":\n1}',
        b'{"a":"\xff"}',
        b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"a":"' + b"x" * MAX_NOTE_BYTES + b'"}',
    ],
)
def test_what_could_end_a_line_or_a_reader_is_not_told(said: Log | Note, body: bytes) -> None:
    """A worker that a server has taken over would write messages of its own to every client."""
    with pytest.raises(BodyError):
        news_of("fs", said, body, ME)


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"7", b"null"])
def test_a_log_line_is_any_value_and_a_note_an_object(body: bytes) -> None:
    """A line of text would be lost, or a note break its client's parser."""
    assert isinstance(news_of("fs", Log("info", ""), body, ME), LogLine)
    with pytest.raises(BodyError):
        news_of("fs", Note("notifications/x"), body, ME)


@pytest.mark.parametrize(
    ("data", "text"),
    [(b' "a\\nb"', "a\nb"), (b'{"n":1}', '{"n":1}'), (b"null", "null"), (b'"' + b"x" * 9_000 + b'"', "")],
)
def test_our_own_log_has_a_text_as_text_and_no_more_of_it_than_fits(data: bytes, text: str) -> None:
    """Our log would be JSON in JSON, or one server's."""
    assert shown(LogLine("fs", "info", "", data)) == (text or "x" * MAX_SHOWN_CHARS)


def test_a_watcher_that_fails_is_said_and_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """One client's bug would silence all servers for the others."""
    watchers, heard = NewsWatchers(), list[News]()

    def fails(_: News) -> None:
        raise ValueError

    watchers.watch(fails)
    unwatch = watchers.watch(heard.append)
    watchers.tell(line := LogLine("fs", "info", "", b"1"))
    assert heard == [line]
    assert "a watcher of what fs says failed" in caplog.text
    unwatch()
    unwatch()
    watchers.tell(line)
    assert heard == [line]


def test_a_watcher_may_go_while_news_are_told() -> None:
    """A session that ends by what it hears would end the telling."""
    watchers, heard = NewsWatchers(), list[News]()

    def once(news: News) -> None:
        heard.append(news)
        unwatch()

    unwatch = watchers.watch(once)
    watchers.watch(heard.append)
    watchers.tell(LogLine("fs", "info", "", b"1"))
    assert len(heard) == 2
