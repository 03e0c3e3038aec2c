"""Restarts, and what `inspect` shows of confined, unstarted and remote servers; memory of process trees."""

import asyncio
import os
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from support.processes.running import output, pid_of_nobody, python_child
from support.serves.products import ProductEndpoint, product_of

from quarterdeck.config.load.file import BrokenRow
from quarterdeck.config.settings import Settings
from quarterdeck.daemon.control.answers import answer
from quarterdeck.daemon.control.protocol import Inspect, Inspection, Ps, Restart, Restarted, SandboxView
from quarterdeck.daemon.control.views import BROKEN, EMBEDDED, NOT_STARTED, REMOTE, tree_memory
from quarterdeck.fleet.worker_session import ConfinedServer
from quarterdeck_protocol.configs import StdioServerConfig, StreamableHttpServerConfig
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.faults import Dossier, FaultKind, ProtocolFault
from quarterdeck_protocol.link.frames import ServerStart
from quarterdeck_protocol.policy import Limits, SandboxPolicy
from quarterdeck_protocol.policy_values import Preset, Property, Tier
from quarterdeck_sandbox.policy.limits import ProcessTree, Usage
from quarterdeck_sandbox.policy.promises import PropertyFinding, Receipt, Strength
from quarterdeck_sandbox.run.monitor import TreeMonitor

RECEIPT = Receipt(
    Tier.BUBBLEWRAP,
    {
        Property.MEMORY: PropertyFinding("control group", Strength.FULL),
        Property.SCRATCH: PropertyFinding("looks", Strength.PARTIAL),
    },
    uid=61_184,
    network="internet",
    shown=("/usr/lib/node",),
    gaps=("scratch: looks",),
)
START = ServerStart(7, 5, program="/usr/bin/node", cwd="/w", enforced=("memory_bytes",), gaps=RECEIPT.gaps)
DEATH = ProtocolFault(FaultKind.TRANSPORT, "it hit its limit", code="limit_hit", dossier=Dossier(limit="cpu_s"))
EXPANDED = "s3cr3t-of-a-variable"
SETTINGS = Settings(
    broken=(BrokenRow("half", "KEY is not set", "unset_variable"),), expanded_secrets=frozenset({EXPANDED})
)


def confined(**members: Any) -> ProductEndpoint:
    """An endpoint whose server was let go; a policy of limits that its test can recognise."""
    watch = TreeMonitor().watch(ProcessTree(7, 5), Limits(), lambda _: None)
    watch.meter.present = Usage(memory_bytes=10, processes=3)
    watch.meter.peak = Usage(memory_bytes=20, processes=3)
    endpoint = ProductEndpoint("fs", **members)
    policy = SandboxPolicy(preset=Preset.STRICT, limits=Limits(memory_bytes=1 << 30, cpu_share=None))
    endpoint.config = StdioServerConfig(id="fs", command="npx", args=("-y", "fs"), sandbox=policy)
    endpoint.confined = ConfinedServer(START, RECEIPT, watch)
    endpoint.pid = 7
    return endpoint


async def inspected(root: Path, endpoint: ProductEndpoint, server: str = "fs") -> Inspection:
    with product_of(root, endpoint, settings=SETTINGS) as product:
        found = await answer(product, Inspect(server))
    assert isinstance(found, Inspection)
    return found


async def test_a_confined_server_is_shown_whole(tmp_path: Path) -> None:
    """A user could not tell what a server can reach."""
    found = await inspected(tmp_path, confined())
    assert found.command == ("npx", "-y", "fs")
    assert msgspec.json.decode(found.policy)["preset"] == "strict"
    receipt = found.receipt
    assert (receipt.tier, receipt.uid, receipt.network) == ("bubblewrap", 61_184, "internet")
    assert (receipt.program, receipt.cwd) == ("/usr/bin/node", "/w")
    assert [(each.name, each.strength) for each in receipt.properties] == [("memory", "full"), ("scratch", "partial")]
    assert (receipt.shown, receipt.gaps) == (("/usr/lib/node",), ("scratch: looks",))
    assert (found.note, found.last_death) == ("", None)


async def test_secrets_in_its_arguments_are_not_shown(tmp_path: Path) -> None:
    """Whoever shows a colleague why a server may not read a file would show its token, too."""
    endpoint = confined()
    words = ("--dsn", f"db://u@h/{EXPANDED}", "--token", "written-outright", "--api-key=this-too", "plain")
    endpoint.config = StdioServerConfig(id="fs", command="npx", args=words, sandbox=SandboxPolicy())
    command = (await inspected(tmp_path, endpoint)).command
    assert not [word for word in command if EXPANDED in word or "outright" in word or "this-too" in word]
    assert (command[0], command[-1]) == ("npx", "plain")


async def test_each_limit_is_shown_with_its_use_and_with_who_keeps_it(tmp_path: Path) -> None:
    """A user could not tell how near a server is to its death, nor whether a limit is kept at all."""
    limits = {limit.name: limit for limit in (await inspected(tmp_path, confined())).limits}
    assert set(limits) == set(Limits.model_fields)
    memory = limits["memory_bytes"]
    assert (memory.most, memory.present, memory.peak, memory.kept_by) == (1 << 30, 10, 20, "the kernel")
    assert limits["processes"].kept_by == "a look every 0.5 s"
    assert limits["open_files"].kept_by == "the kernel, in each process"
    assert limits["line_bytes"].kept_by == "its worker"
    assert limits["cpu_share"].kept_by == "not limited"


async def test_a_share_that_no_group_keeps_is_kept_by_nobody(tmp_path: Path) -> None:
    """It would look enforced."""
    endpoint = confined()
    policy = SandboxPolicy(limits=Limits(cpu_share=0.5))
    endpoint.config = StdioServerConfig(id="fs", command="npx", sandbox=policy)
    limits = {limit.name: limit for limit in (await inspected(tmp_path, endpoint)).limits}
    assert limits["cpu_share"].kept_by == "not kept here: no control group can be written"


async def test_a_server_without_a_process_has_no_present_use_and_keeps_its_receipt_and_its_death(
    tmp_path: Path,
) -> None:
    """One that was just started would look as if it used nothing; or nobody see what led to a crash."""
    endpoint = confined(phase=EndpointPhase.FAULTED, fault=DEATH)
    endpoint.pid = None
    found = await inspected(tmp_path, endpoint)
    assert found.receipt is not None
    assert found.last_death.dossier.limit == "cpu_s"
    assert use_of_memory(found) == (None, 20)
    young = confined()
    young.confined.watch.meter.present = young.confined.watch.meter.peak = None
    assert use_of_memory(await inspected(tmp_path, young)) == (None, None)


def use_of_memory(found: Inspection) -> tuple[float | None, float | None]:
    return next((limit.present, limit.peak) for limit in found.limits if limit.name == "memory_bytes")


async def test_what_is_no_process_of_ours_says_so(tmp_path: Path) -> None:
    """Nothing at all would look like nothing enforced, or like a failure."""
    remote = ProductEndpoint("fs")
    remote.config = StreamableHttpServerConfig(id="fs", url="http://localhost/mcp")
    embedded = ProductEndpoint("fs")
    embedded.isolated = False
    for endpoint, note in ((remote, REMOTE), (embedded, EMBEDDED)):
        found = await inspected(tmp_path, endpoint)
        assert (found.note, found.receipt, found.limits) == (note, None, ())
        assert bytes(found.policy) == b"null"
    idle = await inspected(tmp_path, ProductEndpoint("fs"))
    assert (idle.note, idle.receipt) == (NOT_STARTED, None)
    assert idle.limits != ()
    half = await inspected(tmp_path, ProductEndpoint("fs"), "half")
    assert (half.note, half.command) == (BROKEN, ())
    assert half.last_death is not None


async def test_ps_tells_the_sandbox_in_short(tmp_path: Path) -> None:
    """A program that watches servers would have to inspect each of them."""
    with product_of(tmp_path, confined()) as product:
        listed: Any = await answer(product, Ps())
    assert listed.servers[0].sandbox == SandboxView("bubblewrap", "internet", ("scratch: looks",))


async def test_a_restart_says_how_the_server_is_afterwards(tmp_path: Path) -> None:
    """The command would end before anybody knows whether it helped."""
    up, down = ProductEndpoint("up", "echo"), ProductEndpoint("down", phase=EndpointPhase.FAULTED, fault=DEATH)
    with product_of(tmp_path, up, down, settings=SETTINGS) as product:
        ready = await answer(product, Restart("up"))
        faulted = await answer(product, Restart("down"))
        broken = await answer(product, Restart("half"))
    assert (ready.server.phase, ready.server.restarts) == ("ready", 1)
    assert (faulted.server.phase, faulted.server.restarts) == ("faulted", 1)
    assert broken.server.phase == "faulted"


async def test_a_restart_waits_for_the_new_list_of_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of tools that is shown would be the old server's."""
    with product_of(tmp_path, ProductEndpoint("up", "echo")) as product:
        is_judged = False
        monkeypatch.setattr(product.approvals, "is_judged", lambda _: is_judged)
        restarting = asyncio.create_task(answer(product, Restart("up")))
        for _ in range(2):  # it has asked for the restart; the server is ready, and was looked at
            await anyio.wait_all_tasks_blocked()
            await asyncio.sleep(0)
        assert product.status()["up"].phase is EndpointPhase.READY
        assert not restarting.done()
        is_judged = True
        product.fleet.tell()  # type: ignore[attr-defined]
        assert isinstance(await restarting, Restarted)


@pytest.mark.process
def test_a_tree_weighs_more_than_its_root() -> None:
    """A server that hides its weight in children would look small."""
    program = "import os, subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    with python_child(program) as child:
        assert child.read_line() == b"1"
        root = child.pid
        (below,) = map(int, output("ps", "-o", "pid=", "--ppid", str(root)).split())
        weights = tree_memory([root, below])
        assert weights[root] > weights[below] > 1_000_000


@pytest.mark.process
def test_a_process_that_is_gone_weighs_nothing() -> None:
    """`ps` would fail because a server died at that moment."""
    gone = pid_of_nobody()
    weights = tree_memory([gone, os.getpid()])
    assert gone not in weights
    assert weights[os.getpid()] > 0


def test_nothing_is_looked_at_for_nobody() -> None:
    """A configuration of remote servers would cost a walk over all processes."""
    assert tree_memory([]) == {}
