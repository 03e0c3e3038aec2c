"""The file of tokens: whole, private, changed by one at a time, and read anew when it changed."""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from quarterdeck.host.http import token_file
from quarterdeck.host.http.grants import NO_GRANTS, Grant, GrantState
from quarterdeck.host.http.token_file import GrantReader, TokensError, add_grant, load_grants, revoke

NOW = 1_000_000_000.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def add(path: Path, name: str = "ci") -> str:
    return add_grant(path, lambda digest: Grant(name=name, digest=digest, created_at=NOW), NOW)


def test_a_token_is_kept_as_a_hash_that_its_owner_alone_may_read(path: Path) -> None:
    """Whoever reads a backup would have every client's token."""
    token = add(path)
    assert len(token) > 40
    assert token not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    found = load_grants(path).find(token)
    assert found.name == "ci"
    assert revoke(path, "ci", NOW)
    assert not revoke(path, "ci", NOW)
    assert load_grants(path).grants[0].state(NOW) is GrantState.REVOKED


def test_tokens_that_are_made_at_once_are_all_kept(path: Path) -> None:
    """Of two commands one's token would never open anything."""
    threads = [threading.Thread(target=add, args=(path, f"n{number}")) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {grant.name for grant in load_grants(path).grants} == {f"n{number}" for number in range(8)}
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"key":"zz","grants":[]}', b'{"key":"","version":2}', b"\xff", b" " * (2 << 20)]
)
def test_a_file_that_is_none_is_refused_and_left_as_it_is(path: Path, content: bytes) -> None:
    """A damaged file would be written over, and every revoked token be one that never was."""
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(TokensError, match=r"tokens\.json"):
        add(path)
    assert path.read_bytes() == content


def test_a_file_that_others_may_read_is_refused(path: Path) -> None:
    """Another user could put a token of theirs there."""
    add(path)
    path.chmod(0o644)
    with pytest.raises(TokensError):
        load_grants(path)


def test_a_serve_knows_what_was_made_and_revoked_since(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A token would open only after a restart, or go on opening until one."""
    monkeypatch.setattr(token_file, "LOOK_S", 0.0)
    reader = GrantReader(path)
    assert reader.current() == NO_GRANTS
    token = add(path)
    assert reader.current().find(token) is not None
    assert reader.current() is reader.current()
    revoke(path, "ci", NOW)
    assert reader.current().live("ci", NOW) is None
    path.write_text("{")
    assert reader.current() == NO_GRANTS
    assert "no token but the owner's is accepted" in caplog.text
    path.unlink()
    assert reader.current() == NO_GRANTS


def test_the_file_is_looked_at_now_and_then_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of requests would be one of looks at the disk."""
    now = [time.monotonic()]
    monkeypatch.setattr(token_file.time, "monotonic", lambda: now[0])
    reader = GrantReader(path)
    reader.current()
    add(path)
    assert reader.current() == NO_GRANTS
    now[0] += 2 * token_file.LOOK_S
    assert [grant.name for grant in reader.current().grants] == ["ci"]
    assert json.loads(path.read_text())["version"] == 1
