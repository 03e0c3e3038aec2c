"""How a worker launches what was prepared for it, and what it does where that is no longer so."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from support.sandbox.confinements import PATH, this_machine

from quarterdeck_protocol.link.frames import OpenOrder, StdioServer
from quarterdeck_protocol.policy_values import NetworkMode, PolicyValues, Preset
from quarterdeck_sandbox import Confinement, LaunchPlan, Places, Preparer, Requester, observed_files, plan_launch
from quarterdeck_sandbox.policy.limits import ProcessTree
from quarterdeck_sandbox.policy.promises import Receipt
from quarterdeck_worker.stdio import launch

SERVER = StdioServer("/bin/true", ("--word",), sandbox=PolicyValues(network=NetworkMode.NONE))


@pytest.fixture
def order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenOrder:
    clock = time.time_ns
    monkeypatch.setattr(observed_files.time, "time_ns", lambda: clock() + 10_000_000_000)
    monkeypatch.setattr(launch, "known_machine", this_machine)
    base = tmp_path.resolve()
    places = Places(base / "s" / "home", base / "s" / "tmp", base / "user", (str(base),))
    for folder in (places.home, places.tmp, places.user_home):
        folder.mkdir(parents=True)
    env = {"PATH": PATH, "KEY": "value"}
    requester = Requester(places, {}, this_machine())
    prepared = Preparer().prepare(SERVER.command, SERVER.args, env, "", SERVER.sandbox, requester)
    return OpenOrder(
        SERVER,
        env=env,
        home=str(places.home),
        tmp=str(places.tmp),
        private=places.private,
        user_home=str(places.user_home),
        prepared=msgspec.json.encode(prepared).decode(),
    )


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Confinement]:
    found: list[Confinement] = []

    async def start(confinement: Confinement) -> Any:
        found.append(confinement)
        tree = ProcessTree(1, 1)
        receipt = Receipt(confinement.tier, {}, None, "", (), ())
        return SimpleNamespace(confinement=confinement, receipt=receipt, tree=lambda _: tree)

    monkeypatch.setattr(launch, "start", start)
    return found


async def launched(order: OpenOrder) -> str:
    """Launch; what the supervisor is told has changed."""
    assert isinstance(order.server, StdioServer)
    plan = plan_launch(order.server.command, order.server.args, order.env, order.home)
    process = await launch.sandboxed(order.server.sandbox, order)(plan)
    return launch.describe_start(process, order).changed


async def test_what_was_prepared_is_started_without_a_second_look(
    order: OpenOrder, started: list[Confinement], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty workers would each find out what the supervisor knows."""
    monkeypatch.setattr(launch, "confine", None)
    assert await launched(order) == ""
    [confinement] = started
    assert confinement.plan.argv == ("/bin/true", "--word")
    assert confinement.plan.env["KEY"] == "value"
    assert confinement.plan.env["HOME"] == order.home


async def test_what_has_changed_since_is_found_out_anew_and_told(order: OpenOrder, started: list[Confinement]) -> None:
    """A key that appeared would be open to the server; or every later start would be a slow one."""
    (Path(order.user_home) / ".ssh").mkdir()
    assert await launched(order) == f"{order.user_home}/.ssh"
    assert f"{order.user_home}/.ssh" in started[0].secrets


async def test_what_was_not_prepared_is_found_out(order: OpenOrder, started: list[Confinement]) -> None:
    """A server whose program was just installed could not start."""
    bare = msgspec.structs.replace(order, prepared="")
    assert await launched(order) == await launched(bare) == ""
    assert started[0] == started[1]


async def test_a_trusted_server_is_prepared_like_any(order: OpenOrder, started: list[Confinement]) -> None:
    """It would lose its environment."""
    server = msgspec.structs.replace(SERVER, sandbox=PolicyValues(preset=Preset.TRUSTED))
    bare = msgspec.structs.replace(order, server=server, prepared="")
    assert await launched(bare) == ""
    assert isinstance(started[0].plan, LaunchPlan)
    assert started[0].plan.env == {"PATH": PATH, "KEY": "value"}
