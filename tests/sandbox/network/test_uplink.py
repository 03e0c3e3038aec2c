"""The way from a sandbox to the internet and to nothing nearer, in a world of namespaces with a real helper."""

import json
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from support.processes.identities import USER_UID, Identity, plain_python, quarterdeck_for_others
from support.processes.leftovers import is_running
from support.processes.running import python_child, run
from support.sandbox.gates import GATE
from support.sandbox.machine_facts import BWRAP_ONLY, NO_BWRAP, NO_ROOT, bwrap, not_installed
from support.waiting import eventually

from quarterdeck_protocol.addresses import parse_address
from quarterdeck_sandbox.network.netlink import AddPolicy, Refuse
from quarterdeck_sandbox.network.uplink import changes_for

from .network_lab import GROUP, HOST, NEARBY, PLAYED, PUBLIC

pytestmark = pytest.mark.process

LAB: Final = Path(__file__).with_name("network_lab.py")
PATIENCE_S: Final = 120.0
WAYS: Final = [(who, helper) for who in Identity for helper in ("slirp4netns", "pasta")]


@cache
def no_world() -> str:
    """Why no world can be built here; empty when one can."""
    if os.geteuid() != 0:
        return NO_ROOT
    if not bwrap():
        return NO_BWRAP
    if missing := not_installed("ip", "nsenter", "unshare", "mount", "setpriv"):
        return missing
    cable = ("ip", "link", "add", "near", "type", "veth", "peer", "name", "far")
    tried = run("unshare", "--net", "--mount", *cable)
    if tried.returncode:
        return f"no virtual cable: {tried.stderr.strip()}"
    return "" if Path("/dev/net/tun").exists() else "there is no /dev/net/tun"


@dataclass(frozen=True, slots=True)
class Played:
    """The outcome of each scene that came to its end, and what was complained of."""

    outcomes: dict[str, dict[str, Any]]
    complaints: str

    def __getitem__(self, scene: str) -> dict[str, Any]:
        assert scene in self.outcomes, self.complaints
        return self.outcomes[scene]


@pytest.fixture(scope="module", params=WAYS, ids="-".join)
def played(request: pytest.FixtureRequest) -> Played:
    """All scenes, in one world; skips where none can be played."""
    who, helper = request.param
    if reason := no_world() or who.missing or not_installed(helper):
        pytest.skip(reason)
    is_user = who is Identity.USER
    argv = ["unshare", "--mount", "--net", sys.executable, str(LAB), helper, plain_python()]
    env = {**os.environ, "LAB_GATE": GATE, "LAB_BWRAP": bwrap(), **(quarterdeck_for_others().env if is_user else {})}
    done = run(*argv, *([str(USER_UID)] if is_user else []), env=env, within_s=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return Played(dict(map(json.loads, done.stdout.splitlines())), done.stderr)


def test_the_internet_is_reached_and_nothing_nearer(played: Played) -> None:
    """A server would read a cloud's metadata, or talk to the user's own services, through its internet."""
    outcome = played["reach"]
    found = outcome["found"]
    assert found.pop(PUBLIC) == "world"
    assert found.pop(f"{PUBLIC} tap0") == "world"
    assert found.pop(f"udp {PUBLIC}") == "world"
    assert found.pop(f"udp {PUBLIC} tap0") == "world"
    # The host's resolver listens on the host's loopback: the helper alone reaches it, and only its port.
    assert found.pop("resolver") == "stub"
    assert found.pop("udp 10.0.2.3") == "stub"
    assert found.pop("udp 10.0.2.3 tap0") == "stub"
    assert found.pop("changed") == []
    assert {HOST, f"{HOST} tap0", "127.0.0.1 tap0", "abstract", *(f"{one} tap0" for one in PLAYED)} <= set(found)
    assert {f"udp {one} tap0" for one in (*NEARBY, GROUP)} <= set(found)
    assert {key: answer for key, answer in found.items() if answer is not None} == {}
    assert set(outcome["helpers"]) > {"bwrap"}
    assert outcome["left"] == []


def test_a_helper_ends_with_its_killed_owner(played: Played) -> None:
    """A crash of the supervisor would leave a process behind for every sandbox."""
    assert played["lose_the_owner"]["helpers"] > 0


def test_a_helper_that_is_stopped_ends_with_its_killed_owner_too(played: Played) -> None:
    """It hears of nothing, and would stay for ever."""
    assert played["lose_the_owner_when_stopped"]["helpers"] > 0


def test_a_helper_that_ends_or_hangs_is_told(played: Played) -> None:
    """A server would have no network, while `inspect` says that it has."""
    outcome = played["lose_the_helper"]
    killed, stopped = outcome["whys"]
    assert killed in {"slirp4netns was killed by SIGKILL", "pasta ended"}
    assert "has been stopped for" in stopped
    assert outcome["left"] == []


def test_a_helper_that_cannot_is_named_and_leaves_nothing(played: Played) -> None:
    """A server would wait for ever, or start without the network that its receipt claims."""
    outcome = played["fail"]
    assert outcome["whys"][0].startswith("false gave no network: ")
    assert "nonexistent gave no network" in outcome["whys"][1]
    assert outcome["left"] == []


def test_the_self_test_tells_a_helper_that_works_from_one_that_does_not(played: Played) -> None:
    """`doctor` would promise an internet that no server gets."""
    outcome = played["ask"]
    assert outcome["works"] == ""
    assert outcome["broken"].startswith("false gave no network: ")
    assert outcome["left"] == []


def test_an_address_that_this_machine_gets_later_is_refused_from_then_on() -> None:
    """What is laid is kept for all workers: a server would reach this machine by an address that came after it."""
    before, after = (frozenset({parse_address("203.0.113.7"), *more}) for more in ((), {parse_address("203.0.113.9")}))
    refused = Refuse(IPv4Network("203.0.113.9"))
    for is_slirp in (True, False):
        assert refused not in changes_for(before, is_slirp=is_slirp)
        assert refused in changes_for(after, is_slirp=is_slirp)
    assert any(isinstance(change, AddPolicy) for change in changes_for(before, is_slirp=False))


OWNER = """
import asyncio, os, signal, subprocess, sys
from quarterdeck_sandbox.network import uplink
from quarterdeck_sandbox.policy.machine import Bubblewrap, Machine

class Told(subprocess.Popen):
    def __init__(self, *argv, **options):
        super().__init__(*argv, **options)
        print(self.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

subprocess.Popen = Told
machine = Machine("linux", euid=os.geteuid(), bubblewrap=Bubblewrap(sys.argv[1], works=True))
asyncio.run(uplink._empty_sandbox(machine).__aenter__())
"""


@BWRAP_ONLY
def test_a_trial_whose_owner_is_killed_comes_to_its_end(tmp_path: Path) -> None:
    """Bubblewrap dies of a closed pipe, and what it has made waits for its word: each crash would leave a process."""
    word, late = tmp_path / "word", tmp_path / "bwrap"
    os.mkfifo(word)
    late.write_text(f'#!/bin/sh\nread line <{word}\nexec {bwrap()} "$@"\n')
    late.chmod(0o755)
    with python_child(OWNER, late) as owner:
        session = int(owner.read_line(PATIENCE_S))
        owner.process.wait(PATIENCE_S)
    word.write_text("go\n")
    eventually(lambda: not any(map(is_running, pids_of_session(session))))


def pids_of_session(session: int) -> list[int]:
    """Its processes, whoever they belong to by now."""
    found = []
    for pid in psutil.pids():
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == session:
                found.append(pid)
    return found
