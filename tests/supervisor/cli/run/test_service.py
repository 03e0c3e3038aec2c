"""`quarterdeck service`: what it writes, what it leaves alone, and what it says where nothing runs services."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.config.places import short_folder

from quarterdeck.cli.exits import CommandError, ExitCode
from quarterdeck.cli.run.service import find_units, install, uninstall
from quarterdeck.daemon import place

pytestmark = pytest.mark.process


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home with a session of systemd, whose orders are written down in `orders`."""
    with short_folder() as folder:
        (folder / "run" / "systemd").mkdir(parents=True)
        (folder / "run" / "systemd" / "private").touch()
        (folder / "run").chmod(0o700)
        (folder / "bin").mkdir()
        program = folder / "bin" / "systemctl"
        program.write_text(
            f'#!/bin/sh\necho "$@" >> {folder}/orders\ntest ! -e {folder}/refuses || {{ echo no >&2; exit 1; }}\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder / "run"))
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
        for name in ("XDG_CONFIG_HOME", "QUARTERDECK_STATE_DIR", "QUARTERDECK_RUNTIME_DIR"):
            monkeypatch.delenv(name, raising=False)
        yield folder


def orders(home: Path) -> list[str]:
    path = home / "orders"
    told = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return told


def units(home: Path) -> dict[str, str]:
    """The files where systemd looks for those of a user."""
    folder = home / ".config" / "systemd" / "user"
    return {path.name: path.read_text() for path in folder.iterdir()} if folder.exists() else {}


def test_two_units_are_written_and_started_and_taken_out_again(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody would believe that the daemon starts at login; or never get rid of it."""
    install()
    assert orders(home) == ["--user daemon-reload", "--user enable --now quarterdeck.socket quarterdeck.service"]
    written = units(home)
    assert set(written) == {"quarterdeck.socket", "quarterdeck.service"}
    shown = capsys.readouterr().out
    assert all(text.rstrip() in shown for text in written.values())
    assert str(home / "run" / "quarterdeck" / "service-") in written["quarterdeck.socket"]
    assert f"QUARTERDECK_STATE_DIR={home}/state/quarterdeck" in written["quarterdeck.service"]

    install()
    assert units(home) == written
    assert "ExecStart" not in capsys.readouterr().out

    orders(home)
    uninstall()
    assert orders(home)[:2] == [
        "--user disable quarterdeck.socket quarterdeck.service",
        "--user stop quarterdeck.socket",
    ]
    assert units(home) == {}
    uninstall()
    assert orders(home) == []


def test_nothing_is_written_when_it_is_only_to_be_shown(home: Path) -> None:
    """A look would change the system."""
    install(dry_run=True)
    assert (units(home), orders(home)) == ({}, [])


def test_what_a_person_changed_is_kept_as_a_copy(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An evening's work would be gone with an upgrade, or with `uninstall`."""
    install()
    path = home / ".config" / "systemd" / "user" / "quarterdeck.service"
    for again in (install, uninstall):
        path.write_text(path.read_text() + "Nice=5\n")
        again()
        copies = [text for name, text in units(home).items() if name.endswith(".bak")]
        assert any("Nice=5" in text for text in copies)
        assert "as it was" in capsys.readouterr().out
        assert not path.exists() or "Nice=5" not in path.read_text()


def test_a_unit_of_somebody_else_is_neither_replaced_nor_removed(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who wrote a unit of this name himself would lose it."""
    path = home / ".config" / "systemd" / "user" / "quarterdeck.service"
    path.parent.mkdir(parents=True)
    path.write_text("[Service]\nExecStart=/mine\n")
    with pytest.raises(CommandError, match="did not write it"):
        install()
    uninstall()
    assert units(home) == {"quarterdeck.service": "[Service]\nExecStart=/mine\n"}
    assert "left alone" in capsys.readouterr().err


def test_an_order_that_systemd_refuses_is_said_with_its_words(home: Path) -> None:
    """Somebody would believe that the daemon starts at login."""
    (home / "refuses").touch()
    with pytest.raises(CommandError, match=r"systemctl --user daemon-reload: no") as refused:
        install()
    assert refused.value.code is ExitCode.NO_ANSWER


@pytest.mark.parametrize("lacks", ["systemctl", "session"])
def test_where_nothing_runs_services_it_is_said(home: Path, lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files would be written that nothing ever reads."""
    (home / "bin" / "systemctl" if lacks == "systemctl" else home / "run" / "systemd" / "private").unlink()
    monkeypatch.setenv("PATH", f"{home}/bin")
    for command in (install, uninstall):
        with pytest.raises(CommandError) as refused:
            command()
        assert refused.value.code is ExitCode.NOT_FOUND
        assert "quarterdeck up" in refused.value.remedy
    assert units(home) == {}


def test_another_state_directory_has_units_of_its_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one's daemon would be the first one's, or replace it."""
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(home / "other"))
    (path, *_) = find_units().files
    assert path.name.startswith("quarterdeck-")
    monkeypatch.setattr(place, "PROTOCOL", place.PROTOCOL + 1)
    (after_an_upgrade, *_) = find_units().files
    assert after_an_upgrade == path, "a second pair of units, and the first would stay"
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(home / "an\nother"))
    with pytest.raises(CommandError, match="no service file can hold this"):
        find_units()


def test_a_bwrap_with_privileges_of_its_own_is_seen(home: Path) -> None:
    """The service's filters would keep it from making any sandbox."""
    bwrap = home / "bin" / "bwrap"
    bwrap.touch(0o755)
    assert "NoNewPrivileges" in "".join(find_units().files.values())
    bwrap.chmod(0o755 | stat.S_ISUID)
    assert "NoNewPrivileges" not in "".join(find_units().files.values())
