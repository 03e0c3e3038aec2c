"""Word of what is held, for a client that comes before the ledger can be read."""

import logging
from pathlib import Path

import pytest

from quarterdeck.host.greeter import NOTICE_PLACE, read_notice
from quarterdeck.trust.notice_board import NoticeBoard

SERVE = '["/home/me", "serve"]'


class Board:
    """A board whose text a test sets."""

    def __init__(self, state: Path) -> None:
        self.path = state.joinpath(*NOTICE_PLACE)
        self.text = ""
        self.board = NoticeBoard(state, lambda: self.text, SERVE)

    def says(self, text: str) -> str:
        """What a greeter reads when there is this to say."""
        self.text = text
        self.board.update()
        return read_notice(str(self.path), SERVE)


@pytest.fixture
def board(tmp_path: Path) -> Board:
    (tmp_path / NOTICE_PLACE[0]).mkdir()
    return Board(tmp_path)


def test_what_is_said_is_what_the_next_start_reads(board: Board) -> None:
    """A client would be greeted with what was held last week."""
    assert board.says("1 tool is held.") == "1 tool is held."
    assert board.says("2 tools are held.") == "2 tools are held."
    assert board.says("") == ""
    assert not board.path.exists()


def test_what_an_earlier_serve_left_is_taken_down(board: Board) -> None:
    """All would be well, and clients be told that it is not."""
    board.path.write_text("3 tools are held.")
    assert board.says("") == ""


def test_nothing_is_written_while_nothing_changes(board: Board) -> None:
    """Every change of any server's phase would cost a write."""
    board.says("1 tool is held.")
    board.path.write_text(f"{SERVE}\nmine")
    assert board.says("1 tool is held.") == "mine"


def test_another_serve_does_not_say_what_this_one_held(board: Board) -> None:
    """A client would be told of tools of a server that its configuration does not have."""
    board.says("1 tool is held.")
    assert read_notice(str(board.path), '["/home/me", "serve", "-c", "other.json"]') == ""


def test_what_could_not_be_written_is_said_once_and_tried_again(board: Board, caplog: pytest.LogCaptureFixture) -> None:
    """After a full disk the next client would be told the old state, or the log be full of the same line."""
    aside = board.path.parent.with_name("aside")
    board.path.parent.rename(aside)
    with caplog.at_level(logging.WARNING, "quarterdeck.trust"):
        assert board.says("1 tool is held.") == ""
        assert board.says("2 tools are held.") == ""
        assert len(caplog.records) == 1
        aside.rename(board.path.parent)
        assert board.says("2 tools are held.") == "2 tools are held."
        assert len(caplog.records) == 1
