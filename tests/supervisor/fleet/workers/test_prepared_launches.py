"""Launches are prepared in a thread, and nothing that goes wrong there fails a start."""

import os
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.sandbox.confinements import PATH, this_machine

from quarterdeck.fleet.workers import prepared_launches as module
from quarterdeck.fleet.workers.prepared_launches import PreparedLaunches
from quarterdeck_protocol.link.frames import OpenOrder, StdioServer
from quarterdeck_sandbox import Prepared, observed_files

PATIENCE_S = 30.0


@pytest.fixture
async def launches(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PreparedLaunches]:
    clock = time.time_ns
    monkeypatch.setattr(observed_files.time, "time_ns", lambda: clock() + 10_000_000_000)
    launches = PreparedLaunches(this_machine())
    yield launches
    launches.close()


def order_of(base: Path, command: str = "/bin/true", **members: Any) -> OpenOrder:
    """An order for a server with places below `base`."""
    base = base.resolve()
    for name in ("s/home", "s/tmp", "user"):
        (base / name).mkdir(parents=True, exist_ok=True)
    server = StdioServer(command)
    places = {"home": f"{base}/s/home", "tmp": f"{base}/s/tmp", "user_home": f"{base}/user", "private": (str(base),)}
    return OpenOrder(server, env={"PATH": PATH}, **places, **members)


async def test_an_order_gets_what_confines_its_server(launches: PreparedLaunches, tmp_path: Path) -> None:
    """Each worker would find it out by itself."""
    order = order_of(tmp_path)
    prepared = msgspec.json.decode((await launches.add_to(order)).prepared, type=Prepared)
    assert prepared.confinement.plan.program == "/bin/true"
    assert prepared.observations.changed() == ""


async def test_what_cannot_be_prepared_goes_as_it_is(launches: PreparedLaunches, tmp_path: Path) -> None:
    """A mistyped command would be an error of ours; or a path that is no text would be."""
    order = order_of(tmp_path, "no-such-program")
    assert await launches.add_to(order) == order
    order = order_of(tmp_path, protected=("/\udcff",))
    assert await launches.add_to(order) == order


async def test_what_has_changed_is_laid_out_anew_once_that_is_known(launches: PreparedLaunches, tmp_path: Path) -> None:
    """Every start of a program that was updated would be a slow one."""
    order = order_of(tmp_path)
    await launches.add_to(order)
    os.mkdir(f"{order.user_home}/.ssh")
    launches.forget()
    prepared = msgspec.json.decode((await launches.add_to(order)).prepared, type=Prepared)
    assert f"{order.user_home}/.ssh" in prepared.confinement.secrets


async def test_a_file_system_that_does_not_answer_holds_nobody_up(
    launches: PreparedLaunches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row on a dead network share would keep all servers from starting."""
    monkeypatch.setattr(module, "PREPARE_S", 0.01)
    answers = threading.Event()
    monkeypatch.setattr(launches._preparer, "prepare", lambda *_: answers.wait(PATIENCE_S) and None)
    order = order_of(tmp_path)
    try:
        assert await launches.add_to(order) == order
        monkeypatch.setattr(module, "PREPARE_S", PATIENCE_S)
        assert await launches.add_to(order) == order  # at once
    finally:
        answers.set()
