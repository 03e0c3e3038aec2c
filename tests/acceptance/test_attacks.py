"""Hostile programs in every tier, as root and as an ordinary user: none gets what it wants.

The programs are in `tests/attacks`.  What they say of themselves is checked against what somebody else's program, and
this process, saw from outside.
"""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pytest
from support.processes.forks import Forks
from support.processes.identities import ROOT_BY_NIGHT, USER_UID, Identity, plain_python, user_or_root
from support.sandbox.attack_results import BOMB_LIMITS, BOMBS, FAMILIES, IMPOSSIBLE, NOT_BARE, OUTPUTS, Bomb, names
from support.sandbox.hostile import ATTACKS, END_S, Run, Scene, scene
from support.sandbox.machine_facts import NO_INTERNET_ALONE, ROOT_ONLY, bubblewrap_missing

from quarterdeck_protocol.policy_values import NetworkMode, Tier
from quarterdeck_pytest import ProtocolFault

BARE_ESCAPES: Final = 60
"""Attacks that have to succeed where nothing holds them, on any machine; some need what few have."""

EACH_CONFINED: Final = [Tier.BUBBLEWRAP, pytest.param(Tier.LANDLOCK, marks=pytest.mark.nightly)]

EACH: Final = [
    Tier.BUBBLEWRAP,
    *(pytest.param(tier, marks=pytest.mark.nightly) for tier in Tier if tier is not Tier.BUBBLEWRAP),
]


BEING_ROOT: Final = ("become_root", "hold_capabilities", "supplementary_groups")
"""Attacks that want the mere number of root's user, or of its group."""


LIVES_S: Final = (1, 5, 25)
"""What they are given to live, one after the other, until it is enough for all of them to start."""


LIVES: Final = [name for name in names("lives", "life") if name != "usurp_init"]
"""Those that may live together; the other one takes away what buries them."""


def missing(identity: Identity, tier: Tier) -> str:
    """Why this cannot be tried here; empty when it can."""
    return identity.missing or (bubblewrap_missing() if tier is Tier.BUBBLEWRAP else "")


@pytest.fixture
def place(identity: Identity, tier: Tier, forks: Forks) -> Iterator[Scene]:
    """A place to be attacked, in which nothing hostile is left at the end."""
    if reason := missing(identity, tier):
        pytest.skip(reason)
    with scene(identity, forks) as made:
        yield made
        made.assert_nothing_is_left()


@pytest.mark.parametrize("identity", Identity)
@pytest.mark.parametrize("tier", EACH_CONFINED)
def test_no_attack_escapes_but_the_impossible(tier: Tier, identity: Identity, place: Scene) -> None:
    """One that does is a hole; one that does not run proves nothing."""
    attack_with_everything(tier, place)


@pytest.mark.parametrize("identity", [Identity.ROOT])
@pytest.mark.parametrize("tier", EACH_CONFINED)
def test_a_root_without_capabilities_is_held_like_any_user(tier: Tier, identity: Identity, place: Scene) -> None:
    """It owns the system's files and every process of root's: what holds it must not be ownership."""
    (place.root / "granted").mkdir()
    run = attack_with_everything(tier, place, "--write", str(place.root / "granted"), to_be_had=BEING_ROOT)
    assert run.receipt["uid"] == 0
    assert run.verdicts["hold_capabilities"].why == "user 0 with []"


@pytest.mark.parametrize("identity", [Identity.ROOT])
@pytest.mark.parametrize("tier", EACH_CONFINED)
def test_the_owner_of_what_it_may_write_cannot_change_its_other_files(
    tier: Tier, identity: Identity, place: Scene
) -> None:
    """Root starts a server as the owner of its folder: that user's keys could be opened to everybody."""
    granted = place.root / "granted"
    granted.mkdir()
    for path in (granted, place.outside / "owned", place.root / "attacks", *(place.root / "attacks").iterdir()):
        os.chown(path, USER_UID, USER_UID)
    wanted = [*names("metadata"), "spare_from_oom"]
    with place.victim():
        run = place.attack(tier, wanted, "--network", "none", "--write", str(granted))
    assert run.receipt["uid"] == USER_UID
    assert {name: run.verdicts[name].state for name in wanted} == dict.fromkeys(wanted, "HELD")


OPEN_DEVICES: Final = "for name in null zero full random urandom; do : <>/dev/$name && printf '%s ' $name; done"


@pytest.mark.parametrize("identity", Identity)
@pytest.mark.parametrize("tier", EACH_CONFINED)
def test_the_devices_that_every_program_needs_can_be_opened(tier: Tier, identity: Identity, place: Scene) -> None:
    """git, and whatever starts a process with its output thrown away, would fail; closed for chmod is not shut."""
    (place.root / "granted").mkdir()  # by root, so that it is root's: then no other user would do
    run = place.run(tier, ["/bin/sh", "-c", OPEN_DEVICES], "--write", str(place.root / "granted"))
    assert run.stdout == b"null zero full random urandom ", run.stderr


def attack_with_everything(tier: Tier, place: Scene, *options: str, to_be_had: Iterable[str] = ()) -> Run:
    """Run every attack that can be run after another, and see that none got anything but the impossible."""
    wanted = [name for family in FAMILIES for name in names(family)]
    place.forks = None  # those that are after whoever started them shall meet the command as everybody starts it
    with place.victim() as victim:
        run = place.attack(tier, wanted, "--network", "none", *options)
    assert run.receipt.get("tier") == tier, run.stderr
    verdicts = run.verdicts
    wrong = {
        name: verdicts.get(name)
        for name in wanted
        if name not in verdicts
        or verdicts[name].state not in (("HELD", "ESCAPED") if name in {*IMPOSSIBLE[tier], *to_be_had} else ("HELD",))
    }
    assert wrong == {}
    assert victim.contacts == []
    assert victim.changed == {}
    assert run.status == 0, run.stderr
    return run


@pytest.mark.parametrize("identity", Identity)
@pytest.mark.parametrize("tier", [Tier.BUBBLEWRAP])
def test_the_internet_holds_neither_this_machine_nor_its_neighbours(
    tier: Tier, identity: Identity, place: Scene
) -> None:
    """A server that may call the world must not call the services that trust the machine it runs on."""
    wanted = names("reaching") + names("sockets")
    with place.victim() as victim:
        run = place.attack(tier, wanted)
    if run.receipt["network"] != NetworkMode.INTERNET:
        pytest.skip(f"{NO_INTERNET_ALONE}: {run.receipt['gaps']}")
    assert {name: verdict for name, verdict in run.verdicts.items() if verdict.state != "HELD"} == {}
    assert list(run.verdicts) == wanted
    assert victim.contacts == []


@pytest.mark.parametrize("is_root", ROOT_BY_NIGHT)
@pytest.mark.parametrize("tier", EACH_CONFINED)
@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.names[0])
def test_every_bomb_is_defused(bomb: Bomb, tier: Tier, is_root: bool, forks: Forks) -> None:
    """Whatever it wants too much of, the machine keeps; where the whole tree had to die, the dossier says for what."""
    identity = user_or_root(is_root)
    if reason := missing(identity, tier):
        pytest.skip(reason)
    limits = {**BOMB_LIMITS, **bomb.under}
    options = [word for key, value in limits.items() for word in ("--limit", f"{key}={value}")]
    with scene(identity, forks) as place, place.victim() as victim:
        run = place.attack(tier, bomb.names, "--network", "none", *options)
        place.assert_nothing_is_left()
        assert victim.process.is_running()
    limit = run.dossier.get("limit")
    for name in bomb.names:
        verdict = run.verdicts.get(name)
        state = verdict.state if verdict else "unknown"
        is_defused = (
            state == "HELD"
            or (state == "ENDED" and bomb.limits)
            or (state == "START" and (limit in bomb.limits or (bomb.dies and limit is None)))
        )
        assert is_defused, (name, verdict, limit, run.status, run.stderr[-300:])


@pytest.mark.parametrize("name", OUTPUTS)
def test_output_without_end_ends_the_server(fault_at_start: Callable[..., ProtocolFault], name: str) -> None:
    """A worker that kept all of it would take the machine's memory along."""
    limits = {"output_bytes": "8M", "line_bytes": "1M", "partial_line_s": 1.0}
    wanted = {key: value for key, value in limits.items() if key == OUTPUTS[name]}
    argv = [plain_python(), "-B", "-I", str(ATTACKS), name]
    fault = fault_at_start(argv, policy={"read": [str(ATTACKS)], "limits": wanted})
    assert fault.dossier is not None
    # A line that is too long is told by its own code.
    assert fault.dossier.limit == OUTPUTS[name] or (fault.code == "bad_output" and "a line" in fault.message)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "ended"])
@pytest.mark.parametrize("identity", Identity)
@pytest.mark.parametrize("tier", EACH)
def test_nothing_outlives_its_owner(end: signal.Signals, tier: Tier, identity: Identity, place: Scene) -> None:
    """Daemons, orphans, stopped ones and those that clear the signal of their owner's death included."""
    with place.start(tier, [*place.program, "--life", *LIVES], "--read", str(place.root / "attacks")) as owner:
        assert starts(owner.stdout.readline() for _ in LIVES) == set(LIVES)
        assert place.left()
        owner.send_signal(end)
        owner.wait(END_S)
        place.assert_nothing_is_left()


@pytest.mark.parametrize("identity", Identity)
@pytest.mark.parametrize("tier", EACH)
def test_nothing_outlives_its_time(tier: Tier, identity: Identity, place: Scene) -> None:
    """The same for those that nobody ends."""
    argv = [*place.program, "--life", *LIVES]
    for life_s in LIVES_S:
        run = place.run(tier, argv, "--read", str(place.root / "attacks"), "--limit", f"wall_s={life_s}")
        assert run.dossier["limit"] == "wall_s", run.stderr
        place.assert_nothing_is_left()
        if starts(run.stdout.splitlines()) == set(LIVES):
            return
    pytest.fail(f"only {starts(run.stdout.splitlines())} ever started")


def starts(lines: Iterable[bytes]) -> set[str]:
    """Those that say that they have started."""
    return {line.decode().strip().removeprefix("START ") for line in lines if line.startswith(b"START ")}


@pytest.mark.parametrize("identity", Identity)
@pytest.mark.parametrize("tier", EACH)
def test_a_command_that_ends_takes_its_daemons_along(tier: Tier, identity: Identity, place: Scene) -> None:
    """They hold its pipes, so that whoever reads them would wait for ever."""
    run = place.attack(tier, ["--leave", *LIVES])
    assert run.status == 0, run.stderr
    assert b"START hold_pipes" in run.stdout


@pytest.mark.parametrize("identity", Identity)
@pytest.mark.parametrize("tier", [Tier.BUBBLEWRAP])
def test_the_first_process_of_a_sandbox_cannot_be_taken_over(tier: Tier, identity: Identity, place: Scene) -> None:
    """It is what dies with its owner and ends with the program; as one of the program's user it could be rewritten."""
    run = place.attack(tier, ["--leave", "usurp_init"], "--limit", f"wall_s={LIVES_S[-1]}")
    assert b"START usurp_init" in run.stdout
    assert run.dossier["limit"] is None
    shown = ("--read", str(place.root / "attacks"))
    with place.start(tier, [*place.program, "--one", "usurp_init"], *shown) as owner:
        assert owner.stdout.readline() == b"START usurp_init\n"
        owner.kill()
        owner.wait(END_S)
        place.assert_nothing_is_left()


# As the tests' own user they would stop, trace and slow down the processes that run the tests.
@ROOT_ONLY
@pytest.mark.parametrize("identity", [Identity.USER])
@pytest.mark.parametrize("tier", [Tier.LIMITS])
def test_without_confinement_the_attacks_succeed(tier: Tier, identity: Identity, place: Scene) -> None:
    """Attacks that nothing has to hold would prove nothing."""
    wanted = [name for family in FAMILIES for name in names(family) if name not in NOT_BARE]
    with place.victim() as victim:
        run = place.attack(None, wanted)
    verdicts = run.verdicts
    assert {name: verdict for name, verdict in verdicts.items() if verdict.state not in ("HELD", "ESCAPED")} == {}
    assert list(verdicts) == wanted
    assert sum(verdict.state == "ESCAPED" for verdict in verdicts.values()) >= BARE_ESCAPES
    assert victim.contacts
    assert victim.changed
