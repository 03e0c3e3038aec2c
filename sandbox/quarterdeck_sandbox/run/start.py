"""Start a confinement: spawn it by its tier, prepare it from outside while it is blocked, judge, let it go.

    bubblewrap   guard · bwrap makes the namespaces and blocks · uplink · mounts · gate, which joins a control group ·
                 program, without the guard
    the others   reaper · gate, which joins a control group and confines itself · program

Whatever fails on the way leaves nothing behind.  Must be called from a thread that lives as long as the process
should: the death signal is tied to the spawning thread (bubblewrap issue 692).
"""

import asyncio
import errno
import os
import secrets
import subprocess
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from io import FileIO
from pathlib import Path
from signal import SIGKILL
from typing import Final

import anyio
from msgspec.structs import replace

from quarterdeck_protocol.faults import Dossier
from quarterdeck_protocol.policy_values import NetworkMode, Property, Tier
from quarterdeck_protocol.secrets import Redactor
from quarterdeck_sandbox.gate.order import encode_start
from quarterdeck_sandbox.network.namespace import child_pid_of, prepare_listening
from quarterdeck_sandbox.network.recorder import HostRecorder, RecordingRelay, recorded
from quarterdeck_sandbox.network.relay import Relay
from quarterdeck_sandbox.network.uplink import connect
from quarterdeck_sandbox.policy.confinement import Confinement, observe_receipt
from quarterdeck_sandbox.policy.host_names import FIRST_FREE_PORT
from quarterdeck_sandbox.policy.limits import Excess
from quarterdeck_sandbox.policy.machine import APART_ABI
from quarterdeck_sandbox.policy.mounts import View
from quarterdeck_sandbox.policy.tiers import SETTINGS, rules
from quarterdeck_sandbox.program.launch import LaunchError, exec_error, words_of

from .cgroup import Cgroup
from .hints import infer_hints
from .monitor import TreeMonitor
from .process import ConfinedProcess, SandboxResources
from .process_settings import oom_score_of_confined, open_files_of_children
from .quarantine import HookGuard
from .spawn import GATE_S, GateChannel, Stdio, is_bound_to_bubblewrap, kill_group, spawn_bubblewrap, spawn_reaper
from .stderr import StderrKeeper
from .unix_user import open_to_all

LAST_WORDS_CHARS: Final = 500  # of what a sandbox that could not be built said on stderr

ENDING_S: Final = 0.2
"""How long the status of a sandbox that has closed its channel is waited for: it ends at the same moment."""

STOP_GRACE_S: Final = 1.0  # for a foreground command that is interrupted: TERM, this long, then KILL
READ_BYTES: Final = 64 * 1024
LAST_WORDS_S: Final = 0.5  # how long its stderr is still read once it has ended

LOOK_S: Final = 0.25
"""Between two looks at what it uses; a short command's dossier has what the last one saw."""

_FIXED: Final = ("/", "/usr", "/etc", "/dev", "/proc/self/oom_score_adj")


async def start(
    confinement: Confinement, stdio: Stdio = Stdio.PIPES, recorder: HostRecorder | None = None
) -> ConfinedProcess:
    """Start a confined process; its program runs when this returns, with what the receipt says.

    With a `recorder`, which needs a list of hosts as its network, it reaches none and what it asks for is noted.

    Raise LaunchError if it could not be built, does not hold what the policy requires, or could not be executed.
    """
    if recorder is not None:
        confinement = recorded(confinement)
    try:
        order = _order(confinement)
    except ValueError:
        raise exec_error(errno.EINVAL, confinement.plan) from None
    resources = SandboxResources(recorder=recorder)
    connecting = _Connecting(confinement, resources)
    gate = GateChannel()
    child: subprocess.Popen[bytes] | None = None
    started = False
    try:
        with anyio.fail_after(GATE_S):
            if confinement.tier is Tier.BUBBLEWRAP:
                with ExitStack() as pipes:
                    child, resources.leash_fd, info, block = spawn_bubblewrap(
                        confinement, gate.theirs.fileno(), stdio, pipes
                    )
                    await _prepare_bubblewrap(confinement, resources, connecting, child, info)
                    with suppress(BrokenPipeError):  # it has ended: what it said is quoted at the gate
                        block.write(b"g")
            else:
                child, resources.leash_fd = spawn_reaper(confinement, gate.theirs.fileno(), stdio)
                resources.init_pid = child.pid
            process = await _through_the_gate(confinement, order, resources, connecting, gate, child)
        started = True
    except TimeoutError as error:
        raise LaunchError("spawn_failed", f"the sandbox was not ready within {GATE_S:g} s") from error
    except OSError as error:
        raise LaunchError("spawn_failed", f"the sandbox could not be built: {words_of(error)}") from error
    finally:
        gate.close()
        if not started:
            with anyio.CancelScope(shield=True):
                await connecting.end()
                await _undo(resources, child)
    return process


async def run_foreground(
    confinement: Confinement,
    scratch: tuple[str, ...],
    on_start: Callable[[ConfinedProcess], None],
    quarantine: str = "",
) -> tuple[int, Dossier]:
    """Run a confinement to its end; return its code (minus the signal that ended it) and its dossier.

    Files that it creates for other programs to run are moved into `quarantine`; the dossier's hints name them.  Raise
    LaunchError if it could not be started.
    """
    process = await start(confinement, Stdio.FOREGROUND)
    keeper = StderrKeeper("", Redactor(()))
    monitor = TreeMonitor()
    said: list[str] = []
    guard = HookGuard(confinement.view if quarantine else View(), quarantine, "a command")

    def on_excess(excess: Excess) -> None:
        said.append(excess.detail)
        process.kill_for(excess.limit)

    try:
        on_start(process)
        forget = monitor.watch(process.tree(scratch), confinement.limits, on_excess)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(monitor.run)
            tasks.start_soon(_watch, process, guard, said)
            tasks.start_soon(_report_network_loss, process, said)
            reading = anyio.Event()
            tasks.start_soon(_pass_on, process.stderr_fd, keeper, reading)
            await process.wait()
            with anyio.move_on_after(LAST_WORDS_S):
                await reading.wait()
            tasks.cancel_scope.cancel()
        forget()
    finally:
        await process.stop(STOP_GRACE_S)
        process.close_fds()
        said += [caught.told for caught in guard.look()]
    keeper.close()
    return process.returncode or 0, process.dossier(keeper.tail, (*said, *infer_hints(keeper.tail, confinement)))


async def _prepare_bubblewrap(
    confinement: Confinement,
    resources: SandboxResources,
    connecting: "_Connecting",
    child: subprocess.Popen[bytes],
    info: FileIO,
) -> None:
    try:
        # Once it says whom it has made, that can be ended for certain; giving up waits for it.
        with anyio.fail_after(GATE_S, shield=True):
            resources.init_pid = await child_pid_of(info.fileno())
        try:
            resources.init_fd = os.pidfd_open(resources.init_pid)
        except ProcessLookupError:
            raise LaunchError("spawn_failed", "it ended") from None
        await connecting.begin()
        low_ports = confinement.identity is None and any(route.port < FIRST_FREE_PORT for route in confinement.routes)
        addresses = [route.address for route in confinement.routes if route.needs_address]
        is_recorded = resources.recorder is not None
        if low_ports or addresses or is_recorded:
            await prepare_listening(
                confinement.machine, resources.init_pid, addresses, low_ports=low_ports, takes_all=is_recorded
            )
    except (LaunchError, ProcessLookupError) as error:
        if isinstance(error, LaunchError) and error.code == "network_failed":
            raise
        raise _failed(child, "bubblewrap could not build the sandbox") from error
    except BaseException:
        kill_group(child)  # at once, before the pipe that it waits for is closed, which it takes for a go
        raise


async def _through_the_gate(
    confinement: Confinement,
    order: bytes,
    resources: SandboxResources,
    connecting: "_Connecting",
    gate: GateChannel,
    child: subprocess.Popen[bytes],
) -> ConfinedProcess:
    gate.theirs.close()
    resources.cgroup = group = _group(confinement)
    opened: AbstractContextManager[Mapping[Path, int]] = group.entrances() if group else nullcontext({})
    try:
        with opened as entrances:
            await gate.send_order(order, entrances.values())
        listeners = await gate.receive_listeners(len(confinement.routes))
        if resources.recorder is not None:
            resources.relay = RecordingRelay(resources.recorder, confinement.routes, listeners)
        elif listeners:
            resources.relay = Relay(confinement.routes, listeners)
        report = await gate.receive_report()
    except LaunchError as error:
        raise _failed(child, str(error), error.code) from error
    if report is None:
        raise _failed(child, "the sandbox ended before its program began")
    if confinement.tier is Tier.BUBBLEWRAP and is_bound_to_bubblewrap(resources.init_pid):
        resources.dismiss_guard()
    unmet: dict[Property, str] = {}
    if group is not None:
        told = zip(entrances, report.facts.get("joined", ()), strict=False)
        group.join(report.pid, {place for place, error in told if error == "0"})
        unmet = group.unmet
    await connecting.done()
    receipt = observe_receipt(confinement, report, _our_namespaces(), unmet)
    if resources.relay is not None:
        resources.relay.start()
    if number := await gate.release():
        raise exec_error(number, confinement.plan)
    return ConfinedProcess(child, resources, report.pid, confinement, receipt)


class _Connecting:
    """Connects a sandbox's network, if it has a way to the internet, while the rest of it is made.

    The program waits for it: many servers fetch something first, and try a failed connection only once.
    """

    def __init__(self, confinement: Confinement, resources: SandboxResources) -> None:
        self._confinement = confinement
        self._resources = resources
        self._taking: asyncio.Future[None] | None = None

    async def begin(self) -> None:
        """Return once the helper process runs, or there is to be none, or there was an error, which `done` raises."""
        if self._confinement.network is not NetworkMode.INTERNET:
            return
        spawned = asyncio.Event()
        self._taking = asyncio.ensure_future(self._take(spawned))
        self._taking.add_done_callback(lambda _: spawned.set())
        await spawned.wait()

    async def done(self) -> None:
        """Wait until the network is there.  Raise LaunchError if it is unavailable."""
        if self._taking is not None:
            # Not awaited itself: who gives up would cancel it again and again, in the middle of its clearing up.
            await asyncio.wait((self._taking,))
            self._taking.result()

    async def end(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.gather(self._taking, return_exceptions=True)

    async def _take(self, spawned: asyncio.Event) -> None:
        resources = self._resources
        resources.uplink = await connect(self._confinement.machine, resources.init_pid, spawned.set)


def _group(confinement: Confinement) -> Cgroup | None:
    cgroups = confinement.machine.cgroups
    if confinement.tier is Tier.BUBBLEWRAP and not cgroups.limits_unified:
        # Of use for its end alone, which the process namespace sees to: and to join it would take ten milliseconds.
        cgroups = replace(cgroups, unified="")
    if not (cgroups.controllers or cgroups.unified):
        return None
    return Cgroup.create(cgroups, f"qd-{os.getpid()}-{secrets.token_hex(4)}", confinement.limits)


def _order(confinement: Confinement) -> bytes:
    plan, identity = confinement.plan, confinement.identity
    in_bubblewrap = confinement.tier is Tier.BUBBLEWRAP
    settings = open_to_all(SETTINGS) if confinement.stays_root and not in_bubblewrap else (SETTINGS,)
    return encode_start(
        plan.argv,
        program=plan.program,
        env=plan.env,
        cwd=plan.cwd,
        open_files=open_files_of_children(),
        rlimits=confinement.rlimits,
        identity=(identity.uid, identity.gid) if identity else None,
        listen=[(route.address, route.port) for route in confinement.routes],
        rules=rules(confinement, settings),
        oom_score=oom_score_of_confined(),
        # Its first process is another user's when we are root, else the program could write to its memory.
        set_apart=in_bubblewrap and identity is None and confinement.machine.landlock_abi >= APART_ABI,
        owner=os.getpid(),
        secrets=confinement.secrets,
        fixed=(*(_FIXED if in_bubblewrap or confinement.writes_by_mounts else ()), *confinement.view.closed),
    )


def _failed(child: subprocess.Popen[bytes], what: str, code: str = "spawn_failed") -> LaunchError:
    """Return the error of a sandbox that could not be built, with its last words, and the signal if it was killed."""
    with suppress(subprocess.TimeoutExpired):
        child.wait(ENDING_S)
    # A shell's status: bubblewrap's, if the first process of its sandbox was killed.
    is_killed = child.returncode in (-SIGKILL, 128 + SIGKILL)
    return LaunchError(code, f"{what}: {_last_words(child)}", signal=SIGKILL if is_killed else None)


def _last_words(child: subprocess.Popen[bytes]) -> str:
    assert child.stderr is not None
    kill_group(child)
    child.wait()
    os.set_blocking(child.stderr.fileno(), False)
    words = (child.stderr.read() or b"").decode(errors="replace").strip()
    return words[-LAST_WORDS_CHARS:] or f"it ended with {child.returncode}, without output"


def _our_namespaces() -> dict[str, str]:
    found = {}
    for name in ("mnt", "pid", "net"):
        try:
            found[name] = os.readlink(f"/proc/self/ns/{name}")
        except OSError:
            continue  # no such namespace in this kernel, or no Linux
    return found


async def _undo(resources: SandboxResources, child: subprocess.Popen[bytes] | None) -> None:
    resources.kill()
    if child is not None:
        with anyio.move_on_after(1.0):
            while child.poll() is None:  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(0.005)
        kill_group(child)
        child.wait()
        with anyio.move_on_after(1.0):
            await resources.gone()
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                stream.close()
    await resources.release()


async def _watch(process: ConfinedProcess, guard: HookGuard, said: list[str]) -> None:
    while True:
        process.look()
        said += [caught.told for caught in guard.look()]
        await anyio.sleep(LOOK_S)


async def _report_network_loss(process: ConfinedProcess, said: list[str]) -> None:
    said.append(f"its network failed before it ended ({await process.network_lost()})")


async def _pass_on(fd: int, keeper: StderrKeeper, done: anyio.Event) -> None:
    while True:
        await anyio.wait_readable(fd)
        data = os.read(fd, READ_BYTES)
        if not data:
            done.set()
            return
        keeper.feed(data)
        try:
            os.write(2, data)
        except OSError:
            pass  # nobody reads ours any more: the command goes on
