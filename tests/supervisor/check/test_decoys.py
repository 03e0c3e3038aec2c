"""The decoys of a tried server's home, and how their contents are recognised."""

import json
from base64 import b64encode, urlsafe_b64encode

import pytest

from quarterdeck.check.decoys import DecoyKind, Marks, folders_of, granted_for, make_decoys

DECOYS = make_decoys((f"{at * 0x9E3779B97F4A7C15F39C:020x}"[-20:] for at in range(1, 50)).__next__)


def test_each_decoy_has_a_mark_of_its_own_in_its_content() -> None:
    """A taken key would be reported as a document, or not at all."""
    marks = Marks(DECOYS)
    assert [marks.found_in(decoy.content) for decoy in DECOYS] == [[decoy.path] for decoy in DECOYS]
    assert {decoy.kind for decoy in DECOYS} == set(DecoyKind)
    assert len({decoy.mark for decoy in DECOYS}) == len(DECOYS)


@pytest.mark.parametrize("before", [b"", b"a", b"ab", b"abc\n"])
def test_content_is_recognised_as_it_is_usually_encoded(before: bytes) -> None:
    """Encoding a key once would be enough to take it unseen."""
    content = before + DECOYS[0].content
    sent = (
        content.hex().encode(),
        b64encode(content),
        urlsafe_b64encode(content).rstrip(b"="),
        json.dumps({"text": content.decode()}).encode(),
    )
    assert [Marks(DECOYS).found_in(each) for each in sent] == [[DECOYS[0].path]] * len(sent)
    assert Marks(DECOYS).found_in(b64encode(before * 100)) == []


def test_a_secret_is_never_what_a_server_needs() -> None:
    """A user would be asked to grant a key, or a folder above one."""
    secrets = [decoy for decoy in DECOYS if decoy.kind is DecoyKind.SECRET]
    assert len(secrets) > 5
    assert {granted_for(decoy.path, decoy.kind) for decoy in secrets} == {""}
    above = {folder for decoy in secrets for folder in folders_of([decoy.path])} - {"projects", "projects/shop"}
    assert {granted_for(path, None) for path in above} == {""}
    assert [granted_for(path, None) for path in ("", "Documents.txt", ".config/made")] == ["", "", ""]
    assert [granted_for(path, None) for path in ("Documents/Notes/made.md", "Documents")] == ["Documents"] * 2
