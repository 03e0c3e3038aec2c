"""From a policy to a confinement, with a real filesystem and, at the end, real starts."""

import os
import resource
import shutil
from typing import Any

import anyio
import msgspec
import pytest
from msgspec.structs import replace
from support.sandbox.confinements import BUBBLEWRAP_ONLY, PATH, TierHome, run, this_machine
from support.sandbox.machine_facts import MOUNT_NAMESPACE_ONLY, ROOT_ONLY, installed_only

from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.policy_values import Property, Tier
from quarterdeck_sandbox.policy.confinement import ROOT, Confinement
from quarterdeck_sandbox.policy.machine import Machine
from quarterdeck_sandbox.policy.mounts import MountKind, Places
from quarterdeck_sandbox.program.launch import LaunchError, plan_launch
from quarterdeck_sandbox.run.confine import Requester, confine
from quarterdeck_sandbox.run.start import start

pytestmark = pytest.mark.process

PATIENCE_S = 30.0


class Yard(msgspec.Struct):
    """A user with a home, and a server's private places."""

    tier_home: TierHome
    places: Places
    machine: Machine = msgspec.field(default_factory=this_machine)
    env: dict[str, str] = {}

    def confine(self, *words: str, **policy: Any) -> Confinement:
        """Confine a command; without a network unless the policy says otherwise."""
        fields = {"network": "none", "minimum": self.tier_home.tier, **policy}
        requester = Requester(self.places, {}, self.machine.capped(self.tier_home.tier))
        env = {"PATH": PATH, "HOME": str(self.tier_home.home), **self.env}
        plan = plan_launch(words[0], words[1:], env, str(self.tier_home.home))
        if fields.get("preset") == "trusted":
            fields = {key: value for key, value in fields.items() if key not in ("network", "minimum")}
        return confine(plan, SandboxPolicy.model_validate(fields).values, requester)


@pytest.fixture
def yard(tier_home: TierHome) -> Yard:
    """One in each tier."""
    base = tier_home.home.parent
    tmp, user_home, state = base / "tmp", base / "user", base / "state"
    for folder in (tmp, user_home / ".ssh", state):
        folder.mkdir(parents=True)
    (user_home / ".ssh" / "id_ed25519").write_text("secret")
    return Yard(tier_home, Places(tier_home.home, tmp, user_home, (str(state),)))


def rlimits(confinement: Confinement) -> dict[int, int]:
    return dict(confinement.rlimits)


async def ends(confinement: Confinement) -> int:
    with anyio.fail_after(PATIENCE_S):
        process = await start(confinement)
        try:
            return await process.wait()
        finally:
            await process.stop(5.0)
            process.close_fds()


async def test_what_is_confined_can_be_started_and_use_its_places(yard: Yard) -> None:
    """Every server would fail, for what no part alone has wrong."""
    made = yard.confine("sh", "-c", 'echo hello >"$HOME/file" && [ "$PWD" = "$HOME" ]')
    assert made.tier is yard.tier_home.tier
    assert await ends(made) == 0
    assert (yard.tier_home.home / "file").read_text() == "hello\n"


@MOUNT_NAMESPACE_ONLY
async def test_what_is_protected_is_closed_in_what_may_be_written(yard: Yard) -> None:
    """A server would write the configuration by which it is started."""
    work = yard.places.user_home / "work"
    (work / "sub").mkdir(parents=True)
    config, other = work / "sub/mcp.json", work / "sub/other"
    for path in (config, other):
        path.write_text("as it was")
    if os.geteuid() == 0:
        for path in (work, work / "sub", config, other):
            os.chown(path, 12_345, 12_345)
    script = f"echo x >{other}; echo x >{config}; mv {work}/sub {work}/aside; true"
    missing = work / "missing.json"
    places = replace(yard.places, protected=(str(config), str(missing)))
    machine = replace(yard.machine, closes=True)
    made = replace(yard, places=places, machine=machine).confine("sh", "-c", script, write=[str(work)])
    confines = yard.tier_home.tier is not Tier.LIMITS
    assert made.view.closed == ((str(config),) if confines else ())
    assert any(f"could create {missing}" in gap for gap in made.gaps) is confines
    if confines:
        assert await ends(made) == 0
        assert (config.read_text(), other.read_text()) == ("as it was", "x\n")


async def test_a_trusted_program_runs_as_us_under_limits(yard: Yard) -> None:
    """A user who trusts a server would find it confined all the same."""
    made = yard.confine("sh", "-c", f"cat {yard.places.user_home}/.ssh/id_ed25519", preset="trusted")
    assert (made.tier, made.identity, made.seccomp, made.view.mounts) == (Tier.LIMITS, None, b"", ())
    assert made.secrets == ()
    assert await ends(made) == 0


@ROOT_ONLY
async def test_root_hands_its_places_to_whom_it_becomes(yard: Yard) -> None:
    """A server could not use its own home; or it would run as root."""
    made = yard.confine("true")
    assert made.identity is not None
    assert made.identity.dedicated
    assert {yard.places.home.stat().st_uid, yard.places.tmp.stat().st_uid} == {made.identity.uid}


async def test_limits_are_the_kernels_numbers(yard: Yard) -> None:
    """A limit of the policy would be kept by nobody."""
    limits = {"open_files": 100, "file_size_bytes": "1 MiB", "cpu_s": 0.5, "memory_bytes": "64 MiB", "processes": None}
    found = rlimits(yard.confine("true", limits=limits))
    assert found[resource.RLIMIT_CORE] == 0
    assert found[resource.RLIMIT_NOFILE] == 100
    assert found[resource.RLIMIT_FSIZE] == 1 << 20
    assert found[resource.RLIMIT_CPU] == 1
    assert found[resource.RLIMIT_DATA] == 64 << 20
    assert resource.RLIMIT_NPROC not in found
    assert resource.RLIMIT_AS not in found


async def test_processes_are_counted_with_those_that_share_the_count(yard: Yard) -> None:
    """A server could not start beside a busy user, or a limit would be no limit."""
    made = yard.confine("true", limits={"processes": 50})
    alone = made.identity.dedicated if made.identity else yard.tier_home.tier is Tier.BUBBLEWRAP
    counted = rlimits(made)[resource.RLIMIT_NPROC]
    assert counted == 50 if alone else counted > 50


async def test_what_may_not_be_seen_is_tried(yard: Yard) -> None:
    """A receipt would claim that the keys are hidden, and nobody would have looked."""
    secrets = yard.confine("true").secrets
    assert str(yard.places.private[0]) in secrets
    assert f"{yard.places.user_home}/.ssh" in secrets


@BUBBLEWRAP_ONLY
async def test_listed_hosts_are_in_its_hosts_file_and_nothing_resolves_names(yard: Yard) -> None:
    """A server could not find the one host that it may reach; or it would have DNS as a way out."""
    made = yard.confine("true", network=["a.example:443", "b.example:80"])
    texts = {mount.target: mount.source for mount in made.view.mounts if mount.kind is MountKind.DATA}
    assert [str(route) for route in made.routes] == ["a.example:443", "b.example:80"]
    assert all(f"{route.address} {route.host}\n" in texts["/etc/hosts"] for route in made.routes)
    assert any(line.startswith("nameserver") for text in texts.values() for line in text.splitlines()) is False


@BUBBLEWRAP_ONLY
async def test_a_strict_policy_holds_what_it_requires(yard: Yard) -> None:
    """The strictest preset would start with less than it says, or never."""
    made = yard.confine("true", preset="strict", limits={})
    assert Property.FILESYSTEM in made.required
    assert await ends(made) == 0


@pytest.mark.parametrize("word", ["argument", "write", "hidden"])
async def test_what_cannot_be_given_is_refused_before_anything_starts(yard: Yard, word: str) -> None:
    """A server would start and then fail in its own words, or with more than it should have."""
    outside = yard.places.user_home / "project"
    outside.mkdir()
    policies: dict[str, dict[str, Any]] = {
        "argument": {},
        "write": {"write": [str(yard.places.user_home / "gone")]},
        "hidden": {"hidden": [str(outside)]},
    }
    if (word, yard.tier_home.tier) in {("hidden", Tier.BUBBLEWRAP), ("argument", Tier.LIMITS)}:
        pytest.skip("this can be given")
    with pytest.raises(LaunchError) as caught:
        yard.confine("cat", str(outside), **policies[word])
    assert caught.value.code == "sandbox_refused"


@ROOT_ONLY
async def test_a_project_is_written_by_its_owner(yard: Yard) -> None:
    """A user's files would come back as somebody else's."""
    project = yard.places.user_home.parent / "project"
    project.mkdir()
    os.chown(project, 40_001, 40_001)
    made = yard.confine("sh", "-c", f"echo x >{project}/made", write=[str(project)])
    assert made.identity is not None
    assert (made.identity.uid, made.identity.dedicated) == (40_001, False)
    assert await ends(made) == 0
    assert (project / "made").stat().st_uid == 40_001


async def capabilities(confinement: Confinement) -> set[str]:
    """What is left of them inside, in all five sets."""
    status, said, _ = await run(confinement)
    assert status == 0, said
    return set(said.split())


SHOW_CAPABILITIES = "sed -n 's/^Cap...:.//p' /proc/self/status"


IN_ITS_HOME = """
cat ~/Documents/notes/plan || exit 2
ls ~/Music/song && exit 3
echo >~/Music/new && exit 4
echo >~/Documents/new && exit 5
echo >~/Documents/notes/new && exit 6
exit 0
"""


async def test_what_the_user_calls_documents_is_that_or_an_error_in_its_home(yard: Yard) -> None:
    """A notes server would list nothing, and write where the user never looks."""
    if yard.tier_home.tier is Tier.LIMITS:
        pytest.skip("limits alone hide nothing")
    for name in ("Documents/notes", "Music"):
        (yard.places.user_home / name).mkdir(parents=True)
    (yard.places.user_home / "Documents/notes/plan").touch()
    made = yard.confine("sh", "-c", IN_ITS_HOME, read=[str(yard.places.user_home / "Documents/notes")])
    assert await ends(made) == 0
    assert sorted(os.listdir(yard.places.user_home)) == [".ssh", "Documents", "Music"]
    (yard.tier_home.home / "Music").unlink()
    (yard.tier_home.home / "Music").write_text("its own")
    assert yard.confine("true").view.shown[-1].startswith("home: ~/Music is a file or folder of its own")


@ROOT_ONLY
@installed_only("git")
async def test_git_works_in_a_granted_repository_of_another_user(yard: Yard) -> None:
    """Started by root, a git server would refuse every call: "detected dubious ownership"."""
    if yard.tier_home.tier is Tier.LIMITS:
        pytest.skip("limits alone change no user")
    projects = yard.places.user_home.parent / "projects"
    for name in ("here", "below/here"):
        (projects / name).mkdir(parents=True)
        await anyio.run_process(["git", "init", "-q", projects / name], env={"PATH": PATH})
    script = f"cd {projects}/here && git status && GIT_CONFIG_COUNT=0 git status"
    assert await ends(yard.confine("sh", "-c", script, read=[str(projects)])) == 128
    code, said, _ = await run(yard.confine("git", "-C", f"{projects}/here", "status", read=[str(projects)]))
    assert (code, said[:10]) == (0, "On branch ")
    granted = yard.confine("git", "-C", f"{projects}/below/here", "status", read=[str(projects / "below/here")])
    assert await ends(granted) == 0
    yard.env = {"GIT_CONFIG_COUNT": "0"}
    assert "GIT_CONFIG_KEY_0" not in yard.confine("true", read=[str(projects)]).plan.env


@ROOT_ONLY
async def test_what_is_roots_is_written_by_a_root_without_capabilities(yard: Yard) -> None:
    """In a container everything is root's, and no server could be granted a folder."""
    project = yard.places.user_home.parent / "project"
    project.mkdir()
    made = yard.confine("sh", "-c", f"echo x >{project}/made; {SHOW_CAPABILITIES}", write=[str(project)])
    assert made.identity == ROOT
    assert any("root without capabilities" in gap and str(project) in gap for gap in made.gaps)
    assert await capabilities(made) == {"0" * 16}
    assert (project / "made").stat().st_uid == 0


@ROOT_ONLY
async def test_a_program_that_no_other_user_can_reach_runs_as_root_without_capabilities(yard: Yard) -> None:
    """Where Python or Node lies below a closed /root, and nothing is installed, no server would start."""
    folder = yard.places.user_home / "closed"
    folder.mkdir()
    folder.chmod(0o700)
    shutil.copy("/bin/sh", folder / "tool")
    made = yard.confine(str(folder / "tool"), "-c", f"{SHOW_CAPABILITIES}; cat /etc/shadow 2>/dev/null || true")
    assert made.identity is not None
    if yard.tier_home.tier is Tier.BUBBLEWRAP:
        assert made.identity.dedicated
        return
    assert made.identity == ROOT
    assert made.gaps[-1].startswith(f"user: root without capabilities, as {folder}/tool is out of reach")
    if yard.tier_home.tier is Tier.LANDLOCK:
        assert "/etc/shadow" in made.secrets
        assert await capabilities(made) == {"0" * 16}


@ROOT_ONLY
async def test_the_owner_of_what_is_written_must_reach_the_program(yard: Yard) -> None:
    """Root without capabilities may not write what is somebody else's: it would fail in its own words."""
    folder, project = yard.places.user_home / "closed", yard.places.user_home.parent / "project"
    for made in (folder, project):
        made.mkdir()
    folder.chmod(0o700)
    shutil.copy("/bin/sh", folder / "tool")
    os.chown(project, 40_001, 40_001)
    if yard.tier_home.tier is Tier.BUBBLEWRAP:
        pytest.skip("bubblewrap shows it all the same")
    with pytest.raises(LaunchError, match=f"uid 40001, who owns {project}, and {folder}/tool is out of reach"):
        yard.confine(str(folder / "tool"), "-c", "true", write=[str(project)])


@ROOT_ONLY
async def test_root_who_cannot_become_another_stays_root_without_capabilities(yard: Yard) -> None:
    """In a container that maps no other users every start would fail."""
    yard.machine = replace(yard.machine, euid=0, other_users=False)
    assert yard.confine("true").identity == ROOT


async def test_a_plan_is_changed_in_nothing_but_its_program_and_what_the_view_adds(yard: Yard) -> None:
    """A server would see other arguments than it was given."""
    made = yard.confine("env", "--", "true")
    assert made.plan.argv == ("env", "--", "true")
    assert made.plan.env == {"PATH": PATH, "HOME": str(yard.tier_home.home), **made.view.env}
    assert made.view.env == {"HOME": str(yard.places.home), "TMPDIR": str(yard.places.tmp)}
    assert made.plan.program in ("/usr/bin/env", "/bin/env")
