"""Partial sandboxes are told once for each state directory."""

import logging
from pathlib import Path

import pytest

from quarterdeck.config.places.sandbox_notice import warn_once

NETWORK = "network: can reach your local network; apt install slirp4netns"
MEMORY = "memory: looks; start quarterdeck where it may make control groups"


def test_the_same_gaps_are_told_once_and_others_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Users would learn to overlook the line, or not hear that their sandbox became weaker."""
    with caplog.at_level(logging.WARNING):
        assert [warn_once([NETWORK], tmp_path), warn_once([NETWORK], tmp_path)] == [True, False]
        assert warn_once([NETWORK, MEMORY], tmp_path)
        assert not warn_once([MEMORY, NETWORK], tmp_path)
    assert [record.getMessage() for record in caplog.records] == [
        "Sandbox is partial here (network): see `quarterdeck doctor`",
        "Sandbox is partial here (memory, network): see `quarterdeck doctor`",
    ]


def test_where_nothing_can_be_noted_down_it_is_told_again(tmp_path: Path) -> None:
    """A full disk would hide it."""
    assert warn_once([NETWORK], tmp_path / "none")
    assert warn_once([NETWORK], tmp_path / "none")
    assert not (tmp_path / "none").exists()
