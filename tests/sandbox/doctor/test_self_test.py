"""Attacks on real sandboxes of this machine, and what is made of them."""

import os
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.sandbox.machine_facts import ROOT_ONLY, gives_only
from support.waiting import PATIENCE_S

from quarterdeck_protocol.policy_values import Tier
from quarterdeck_sandbox.doctor.attacks import EscapeError, trace_the_owner
from quarterdeck_sandbox.doctor.probe import known_machine, probe_machine
from quarterdeck_sandbox.doctor.self_test import AGAINST, self_test
from quarterdeck_sandbox.policy.confinement import Confinement
from quarterdeck_sandbox.policy.diagnosis import AttackOutcome
from quarterdeck_sandbox.policy.machine import Machine
from quarterdeck_sandbox.program.launch import LaunchError
from quarterdeck_sandbox.run.process import ConfinedProcess

pytestmark = pytest.mark.process


async def escapes(tier: Tier) -> set[str]:
    """The attacks that got through on a sandbox of `tier`, which is said to be attacked; all others were held."""
    machine = known_machine().capped(tier)
    if machine.tier is not tier:
        pytest.skip(gives_only(machine.tier))
    test = await self_test(machine)
    assert not test.why
    assert test.receipt is not None
    assert test.receipt.tier is tier
    assert [attack.name for attack in test.attacks] == [name.replace("_", " ") for name in AGAINST]
    assert not [attack for attack in test.attacks if attack.outcome is AttackOutcome.UNKNOWN]
    return {attack.name for attack in test.attacks if attack.outcome is AttackOutcome.ESCAPED}


async def test_bubblewrap_holds_every_attack_but_on_a_network_that_it_leaves_open() -> None:
    """The strongest tier would be worth less than it says."""
    expected = set() if known_machine().gives_internet else {"connect to the host", "connect to an abstract socket"}
    assert await escapes(Tier.BUBBLEWRAP) == expected


async def test_landlock_holds_all_but_the_list_of_processes_and_the_network() -> None:
    """The second tier would leak what its receipt does not name; or the attacks would meet more than servers do."""
    found = await escapes(Tier.LANDLOCK)
    assert found - {"signal the owner"} == {"see processes", "connect to the host"}
    assert "signal the owner" not in found or probe_machine().landlock_abi < 6


@ROOT_ONLY
async def test_it_runs_as_whom_servers_run(tmp_path: Path) -> None:
    """Where servers stay root, a user of its own would be attacked in their stead."""
    os.chmod(tmp_path, 0o700)
    machine = known_machine().capped(Tier.LANDLOCK)
    if machine.tier is not Tier.LANDLOCK:
        pytest.skip(gives_only(machine.tier))
    test = await self_test(machine, place=str(tmp_path))
    assert test.receipt is not None
    assert test.receipt.uid == 0
    assert {attack.name for attack in test.attacks if attack.outcome is AttackOutcome.ESCAPED} <= {
        "see processes",
        "connect to the host",
        "signal the owner",
    }


async def test_the_attacks_do_attack() -> None:
    """Attacks that fail by themselves would prove any sandbox perfect."""
    assert await escapes(Tier.LIMITS) >= {"read a secret", "write outside", "see processes"}


def test_whom_an_attack_traces_runs_on() -> None:
    """Where nothing holds it, `doctor` would be stopped by its own self-test, and never end."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        try:
            with pytest.raises(EscapeError):
                trace_the_owner({"owner": owner.pid})
            assert owner.communicate(b"x", timeout=PATIENCE_S)[0] == b"x"
        except PermissionError:
            pytest.skip("this machine lets no process trace another one")
        finally:
            owner.kill()


async def test_a_sandbox_that_cannot_be_started_is_told() -> None:
    """`doctor` would crash on the machines that need it most."""

    async def refuse(confinement: Confinement) -> ConfinedProcess:
        raise LaunchError("spawn_failed", "bwrap: no")

    assert (await self_test(probe_machine(), refuse)).why == "bwrap: no"


async def test_a_machine_without_anything_still_gets_an_answer() -> None:
    """No exception may come of a machine that lacks it all."""
    test = await self_test(replace(Machine(system="linux"), euid=os.geteuid()))
    assert test.why or test.attacks
