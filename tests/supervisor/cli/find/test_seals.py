"""Sealed packages are listed, shown and verified as they are, and go only when that is wanted."""

import os
from pathlib import Path

import msgspec
import pytest
from support.command_line import Said
from support.ledger.histories import open_ledger
from support.ledger.histories import sealed as event
from support.seals import FILES, manifest, write

from quarterdeck.config.places.paths import make_private_dir, seals_dir, state_dir
from quarterdeck.seals.manifest import Package
from quarterdeck.seals.store import Seal, SealStore
from quarterdeck.trust.judge.server_rows import COMMAND_SCOPE, PROGRAM_SCOPE, USER_SCOPE

PACKAGES = (
    Package("server", "1.0.0", "sha512-a", 30, "MIT"),
    Package("other", "2.0.0", "sha512-b", 7, script="postinstall"),
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SealStore:
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(make_private_dir(tmp_path.resolve() / "state")))
    monkeypatch.setattr("quarterdeck.seals.store.sync_file_system", lambda _: None)
    monkeypatch.setenv("QUARTERDECK_DATA_DIR", str(tmp_path.resolve() / "data"))
    return SealStore(seals_dir())


def sealed(store: SealStore, version: str = "1.0.0") -> Seal:
    with store.making() as place:
        write(place / "tree", {**FILES, "version": version.encode()})
        made_at = "2026-11-28T10:00Z"
        made = msgspec.structs.replace(manifest(version=version), packages=PACKAGES, made_at=made_at)
        return store.adopt(place, made)


@pytest.fixture
def deck(tmp_path: Path) -> Path:
    """A file with a row of the server that `used` speaks of."""
    path = tmp_path.resolve() / "deck.json"
    path.write_text('{"mcpServers": {"notes": {"command": "npx", "args": ["server"]}}}')
    return path


def used(*seals: Seal, scope: Path | str) -> None:
    """Have the ledger say that a server runs from these, one after the other."""
    with open_ledger(state_dir()) as ledger:
        ledger.append([event(seal.digest, "notes", str(scope)) for seal in seals], {})


def test_seals_are_listed_with_what_uses_them(store: SealStore, deck: Path, said: Said) -> None:
    """A user could not tell what takes the room, or what can go; a damaged one would hide the others."""
    assert said(0, "seals", "list").err == "no package is sealed\n"
    one, two = sealed(store), sealed(store, "1.1.0")
    used(two, scope=deck)
    header, first, second = said(0, "seals", "list").out.splitlines()
    assert header.split("  ")[0] == "DIGEST"
    assert first.split() == [one.digest[:12], "server", "(npm)", "1.0.0", "34", "B", "4", one.manifest.made_at, "-"]
    assert second.split()[-1] == "notes"
    row = said.json(0, "seals", "list", "--json")[1]
    assert (row["digest"], row["version"], row["used_by"], row["problem"]) == (two.digest, "1.1.0", ["notes"], None)
    (two.folder / "manifest").write_bytes(b"")
    rows = said.json(0, "seals", "list", "--json")
    assert [row["package"] for row in rows] == [None, "server"]
    assert "is damaged" in rows[0]["problem"]
    assert "is damaged" in said(0, "seals", "list").out


def test_a_seal_shows_its_packages_and_the_scripts_that_did_not_run(store: SealStore, said: Said) -> None:
    """A user would approve code without knowing of its install scripts, or whose it is."""
    seal = sealed(store)
    out = said(0, "seals", "show", seal.digest[:4]).out
    assert seal.digest in out
    assert "postinstall, not run" in out
    assert "MIT" in out
    shown = said.json(0, "seals", "show", seal.digest, "--json")
    assert shown["tree"] == str(seal.tree)
    assert [(each["name"], each["script"], each["has_run_script"]) for each in shown["packages"]] == [
        ("server", None, False),
        ("other", "postinstall", False),
    ]


def test_verify_names_the_files_that_changed(store: SealStore, said: Said) -> None:
    """Code that was changed on the disk would go unnoticed, or nobody would know where to look."""
    assert "0 sealed packages" in said(0, "seals", "verify").out
    one, two = sealed(store), sealed(store, "1.1.0")
    assert "2 sealed packages: every file is as it was installed" in said(0, "seals", "verify").out
    os.chmod(one.tree / "version", 0o644)
    (one.tree / "version").write_bytes(b"9.9.9")
    out = said(1, "seals", "verify").out
    assert out.splitlines() == [f"server 1.0.0 ({one.digest[:12]}): 1 file changed", "  changed: version"]
    found = said.json(1, "seals", "verify", one.digest[:8], "--json")
    assert [(each["path"], each["what"]) for each in found[0]["differences"]] == [("version", "changed")]
    assert said.json(0, "seals", "verify", two.digest, "--json")[0]["differences"] == []
    (two.folder / "entries").unlink()
    assert "list of files" in said(1, "seals", "verify", two.digest).out


def test_a_seal_is_removed_unless_a_server_needs_it(store: SealStore, deck: Path, said: Said) -> None:
    """A server would need its registry at the next start, and nobody would have been asked."""
    one, two = sealed(store), sealed(store, "1.1.0")
    used(one, scope=deck)
    assert "nothing was changed" in said(2, "seals", "remove", one.digest).err
    said(0, "seals", "remove", one.digest[:9], "--yes")
    assert said.json(0, "seals", "remove", two.digest, "--json") == {"digest": two.digest, "used_by": []}
    assert store.digests() == []


def test_a_seal_in_use_stays(store: SealStore, said: Said) -> None:
    """A server that runs would lose files that it has not loaded yet."""
    seal = sealed(store)
    with store.held(seal):
        assert "is in use" in said(1, "seals", "remove", seal.digest).err
    assert store.seals() == [seal]


def test_what_no_server_needs_is_collected_once_that_is_confirmed(store: SealStore, deck: Path, said: Said) -> None:
    """Old versions would stay for good, or go although a row starts from them, or may go back to them."""
    one, two, three = (sealed(store, version) for version in ("1.0.0", "1.1.0", "1.2.0"))
    used(one, two, three, scope=deck)
    assert "confirmation needed" in said(2, "seals", "collect").err
    assert store.seals() == [one, two, three]
    assert "removed 1 sealed package, 34 B" in said(0, "seals", "collect", "--yes").out
    assert [row["used_by"] for row in said.json(0, "seals", "list", "--json")] == [["notes (before)"], ["notes"]]
    assert said(0, "seals", "collect").err == "every sealed package is used\n"
    sealed(store)
    assert [row["is_removed"] for row in said.json(0, "seals", "collect", "--yes", "--json")] == [True]
    assert store.seals() == [two, three]


@pytest.mark.parametrize("text", [None, "{}", '{"mcpServers": {"other": {"command": "npx", "args": ["server"]}}}'])
def test_a_row_that_is_gone_keeps_no_seal(store: SealStore, deck: Path, said: Said, text: str | None) -> None:
    """What a removed server ran from would stay on the disk for good."""
    used(sealed(store), sealed(store, "1.1.0"), scope=deck)
    deck.write_text(text) if text is not None else deck.unlink()
    assert [row["used_by"] for row in said.json(0, "seals", "list", "--json")] == [[], []]
    assert "removed 2 sealed packages" in said(0, "seals", "collect", "--yes").out


def test_a_row_of_the_users_own_file_keeps_its_seal_until_it_is_taken_out(
    store: SealStore, deck: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server would need its registry at the next start, because it is in no file that was named."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(deck.parent))
    own = deck.parent / "quarterdeck" / "mcp.json"
    make_private_dir(own.parent)
    deck.rename(own)
    used(sealed(store), scope=USER_SCOPE)
    assert said(0, "seals", "collect", "--yes").err == "every sealed package is used\n"
    own.write_text("{}")
    assert "removed 1 sealed package" in said(0, "seals", "collect", "--yes").out


@pytest.mark.parametrize("scope", [COMMAND_SCOPE, PROGRAM_SCOPE, None], ids=["a command", "a program", "broken file"])
def test_a_seal_stays_where_no_file_can_tell_of_its_row(
    store: SealStore, deck: Path, said: Said, scope: str | None
) -> None:
    """One slip of the pen in a file, or a server that no file names, would have its seal removed."""
    deck.write_text("{")
    used(sealed(store), scope=scope or deck)
    assert said(0, "seals", "collect", "--yes").err == "every sealed package is used\n"
    assert len(store.seals()) == 1


def test_a_beginning_that_several_have_is_refused(store: SealStore, said: Said) -> None:
    """The wrong one would be removed."""
    for number in range(17):  # of as many, two begin with the same digit
        sealed(store, f"1.0.{number}")
    digits = [digest[0] for digest in store.digests()]
    common = next(digit for digit in digits if digits.count(digit) > 1)
    assert "several seals begin" in said(3, "seals", "remove", common).err
    assert len(store.digests()) == 17
