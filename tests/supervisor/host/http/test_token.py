"""The token's file: created once, private, and refused when it is not."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from quarterdeck.host.http.token import TokenFileError, load_or_create_token, load_token


def test_the_token_is_created_once_and_then_kept(tmp_path):
    """Clients are configured with it: a new one at each start would lock them out."""
    path = tmp_path / "state" / "token"
    token = load_or_create_token(path)
    assert len(token) >= 43
    assert load_or_create_token(path) == token == load_token(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["token"]


def test_all_who_create_it_at_once_get_the_same(tmp_path):
    """Two servers started together would refuse each other's clients."""
    path = tmp_path / "token"
    with ThreadPoolExecutor(8) as threads:
        tokens = set(threads.map(lambda _: load_or_create_token(path), range(32)))
    assert len(tokens) == 1


def test_there_is_none_before_it_was_created(tmp_path):
    """`token show` must not make one up."""
    with pytest.raises(FileNotFoundError):
        load_token(tmp_path / "token")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_token_that_others_may_read_is_refused(tmp_path, mode):
    """It may be known already."""
    path = tmp_path / "token"
    load_or_create_token(path)
    path.chmod(mode)
    with pytest.raises(TokenFileError, match="others may read"):
        load_or_create_token(path)


@pytest.mark.parametrize(
    "content", [b"", b"short\n", b"\xff" * 50, b"a" * 20 + b" " + b"b" * 20, b"a" * 40 + b"\n" + b"b"]
)
def test_a_file_without_a_token_is_refused(tmp_path, content):
    """An empty file would be an empty password."""
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(TokenFileError, match="contains no token"):
        load_token(path)


def test_a_link_is_not_followed(tmp_path):
    """It may point at somebody else's file."""
    (tmp_path / "real").write_text("a" * 40)
    (tmp_path / "real").chmod(0o600)
    (tmp_path / "token").symlink_to(tmp_path / "real")
    with pytest.raises(TokenFileError, match="cannot be read"):
        load_token(tmp_path / "token")
