"""What is laid out for one server serves the next; what has changed since is seen, and nothing of one is another's."""

import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from support.processes.running import output
from support.sandbox.confinements import PATH, this_machine

from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.policy_values import Tier
from quarterdeck_sandbox import observed_files
from quarterdeck_sandbox.policy.confinement import Confinement
from quarterdeck_sandbox.policy.mounts import Places
from quarterdeck_sandbox.program.launch import LaunchError, plan_launch
from quarterdeck_sandbox.run import prepare as module
from quarterdeck_sandbox.run.confine import Requester, confine, settle
from quarterdeck_sandbox.run.prepare import Prepared, Preparer

MACHINE = this_machine()


@dataclass
class Site:
    """A user with a program of its own, and servers' places."""

    base: Path
    preparer: Preparer
    machine: Any = MACHINE

    @property
    def program(self) -> Path:
        return self.base / "opt" / "bin" / "tool"

    def places(self, server: str) -> Places:
        """One server's; the user's home and the state are everybody's."""
        folder = self.base / "state" / "servers" / server
        for name in ("home", "tmp"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        user = self.base / "user"
        return Places(folder / "home", folder / "tmp", user, (str(self.base / "state"),), (f"{user}/word",))

    def ask(self, server: str, *words: str, cwd: str = "", **policy: Any) -> tuple[Any, ...]:
        places = self.places(server)
        env = {"PATH": PATH, "HOME": str(places.home), "KEY": server, **policy.pop("env", {})}
        values = SandboxPolicy.model_validate({"network": "none", **policy}).values
        words = words or (str(self.program), "--name", server)
        return words[0], words[1:], env, cwd, values, Requester(places, {}, self.machine)

    def prepare(self, server: str, *words: str, **policy: Any) -> Prepared | None:
        prepared = self.preparer.prepare(*self.ask(server, *words, **policy))
        return prepared and msgspec.json.decode(msgspec.json.encode(prepared), type=Prepared)

    def confined(self, server: str, *words: str, **policy: Any) -> Confinement:
        command, args, env, cwd, values, requester = self.ask(server, *words, **policy)
        plan = plan_launch(command, args, env, cwd or str(requester.places.home))
        return confine(plan, values, requester)

    def used(self, prepared: Prepared, server: str, *words: str, **policy: Any) -> Confinement:
        command, args, env, cwd, _, requester = self.ask(server, *words, **policy)
        plan = plan_launch(command, args, env, cwd or str(requester.places.home))
        return settle(prepared.confinement_for(plan), requester.places)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    base = tmp_path.resolve()
    site = Site(base, Preparer())
    site.program.parent.mkdir(parents=True)
    shutil.copy("/bin/true", site.program)
    (base / "user").mkdir()
    clock = time.time_ns
    monkeypatch.setattr(observed_files.time, "time_ns", lambda: clock() + 10_000_000_000)
    return site


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that something was laid out for."""
    found: list[str] = []
    lay_out = module.lay_out
    monkeypatch.setattr(module, "lay_out", lambda plan, *rest: found.append(plan.program) or lay_out(plan, *rest))
    return found


@pytest.mark.parametrize("tier", [Tier.BUBBLEWRAP, Tier.LANDLOCK])
def test_what_is_prepared_is_what_a_worker_would_make(site: Site, tier: Tier, looks: list[str]) -> None:
    """A server would see less, or more, for not being the first of its program."""
    site.machine = MACHINE.capped(tier)
    for server in ("one", "two", "three"):
        prepared = site.prepare(server)
        assert prepared is not None
        assert prepared.observations.changed() == ""
        if MACHINE.tier is Tier.BUBBLEWRAP or tier is Tier.LANDLOCK:
            made, wanted = site.used(prepared, server), site.confined(server)
            assert replace(made, rlimits=()) == replace(wanted, rlimits=())
    assert looks == [str(site.program)]


def test_a_trusted_program_is_prepared_too(site: Site, looks: list[str]) -> None:
    """It would be the only one that each worker looks for."""
    policy = {"preset": "trusted", "network": "full"}
    for server in ("one", "two"):
        prepared = site.prepare(server, **policy)
        assert prepared is not None
        made, wanted = site.used(prepared, server, **policy), site.confined(server, **policy)
        assert replace(made, rlimits=()) == replace(wanted, rlimits=())
    assert len(looks) == 1


def test_nothing_of_one_server_is_sent_to_another(site: Site) -> None:
    """A key of one would be in the memory of the other's worker, or its home in the other's view."""
    site.prepare("one", env={"TOKEN": "secret-of-one"})
    sent = msgspec.json.encode(site.prepare("two"))
    assert b"secret-of-one" not in sent
    assert b"/one/" not in sent


@pytest.mark.parametrize(
    "other",
    [
        {"network": "full"},
        {"limits": {"processes": 7}},
        {"env": {"PATH": "/usr/bin"}},
        {"env": {"PYENV_VERSION": "3.12"}},
        {"env": {"SSL_CERT_FILE": "/etc/ssl/cert.pem"}},
        {"cwd": "/usr"},
    ],
    ids=str,
)
def test_another_policy_or_place_is_laid_out_anew(site: Site, looks: list[str], other: dict[str, Any]) -> None:
    """A changed row would start with what it was before."""
    site.prepare("one")
    prepared = site.prepare("one", **dict(other))
    assert prepared is not None
    assert len(looks) == 2
    assert replace(site.used(prepared, "one", **dict(other)), rlimits=()) == replace(
        site.confined("one", **dict(other)), rlimits=()
    )


def test_other_words_and_keys_are_not_laid_out_anew(site: Site, looks: list[str]) -> None:
    """Hardly any two servers have the same arguments."""
    for server in ("one", "two"):
        site.prepare(server, str(site.program), f"--unique={server}", env={"API_KEY": server})
    assert len(looks) == 1


def replace_program(site: Site) -> None:
    new = site.program.with_name("new")
    shutil.copy("/bin/false", new)
    new.rename(site.program)


CHANGES: dict[str, Callable[[Site], object]] = {
    "the program is replaced": replace_program,
    "it is no longer executable": lambda site: site.program.chmod(0o644),
    "it becomes a link": lambda site: (site.program.unlink(), site.program.symlink_to("/bin/false")),
    "a folder above it becomes a link": lambda site: (
        (site.base / "opt").rename(site.base / "elsewhere"),
        (site.base / "opt").symlink_to("elsewhere"),
    ),
    "a secret appears": lambda site: (site.base / "user" / ".ssh").mkdir(),
    "what is closed appears": lambda site: (site.base / "user" / "word").mkdir(),
    "an environment appears around it": lambda site: (site.base / "opt" / "pyvenv.cfg").touch(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_after_it_was_laid_out_is_seen_at_the_start(site: Site, name: str) -> None:
    """A server would be started with a view that was right for what was there before."""
    site.prepare("one")
    CHANGES[name](site)
    sent = site.prepare("two")
    assert sent is not None
    assert sent.observations.changed().startswith(str(site.base))


def test_what_is_forgotten_is_laid_out_as_it_is_now(site: Site) -> None:
    """Each start after a change would be a slow one."""
    site.prepare("one")
    (site.base / "user" / ".ssh").mkdir()
    site.preparer.forget()
    prepared = site.prepare("two")
    assert prepared is not None
    assert prepared.observations.changed() == ""
    assert f"{site.base}/user/.ssh" in prepared.confinement.secrets


def test_what_an_argument_names_is_looked_at_for_each_server(site: Site) -> None:
    """What the second server names and cannot see would be found out by its users."""
    hidden = site.base / "user" / "data"
    hidden.mkdir()
    assert site.prepare("one") is not None
    assert site.prepare("two", str(site.program), str(hidden)) is None
    with pytest.raises(LaunchError, match="is hidden"):
        site.confined("two", str(site.program), str(hidden))


def test_a_program_in_a_servers_own_home_is_its_alone(site: Site, looks: list[str]) -> None:
    """Another server would be shown it, or run it."""
    for server in ("one", "two"):
        program = site.places(server).home / "tool"
        shutil.copy("/bin/true", program)
        prepared = site.prepare(server, "./tool")
        assert prepared is not None
        assert prepared.confinement.plan.program == str(program)
    assert len(looks) == 2


def test_what_was_just_written_is_left_to_the_worker(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second change in the same tick of the clock would not be seen."""
    monkeypatch.setattr(observed_files.time, "time_ns", lambda: os.stat(site.program).st_ctime_ns)
    assert site.prepare("one") is None


def test_what_cannot_start_is_left_to_the_worker_to_say(site: Site) -> None:
    """The fault would have no words, or nobody to answer with."""
    assert site.prepare("one", "no-such-program") is None
    assert site.prepare("one", sys.executable, read=("/proc",)) is None


def test_what_is_kept_is_bounded(site: Site, monkeypatch: pytest.MonkeyPatch, looks: list[str]) -> None:
    """A daemon of a month would hold every policy that it has seen."""
    monkeypatch.setattr(module, "MAX_KEPT", 2)
    for processes in (1, 2, 3, 3, 1):
        site.prepare("one", limits={"processes": processes})
    assert len(site.preparer._layouts) == 2
    assert len(looks) == 4


@pytest.mark.process
def test_a_submodule_of_the_users_is_known_at_the_start_however_old_the_preparation(site: Site) -> None:
    """What the user added to the repository would be taken away by the next call of a server."""
    folder = site.base / "repository"
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-C")
    for place in (folder, folder / "sub"):
        place.mkdir()
        output(*git, place, "init", "-q")
        output(*git, place, "commit", "-q", "--allow-empty", "-m", "x")
    prepared = site.prepare("one", write=[str(folder)])
    assert prepared is not None
    assert prepared.observations.changed() == ""
    output(*git, folder, "add", "sub")
    assert prepared.observations.changed() == f"{folder}/.git/index"
    [top, _] = site.confined("one", write=[str(folder)]).view.repositories
    assert top.known == ("sub",)
