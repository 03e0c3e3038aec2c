"""`quarterdeck sandbox`: any command under a policy, to try one before it is trusted."""

import os
import stat
from io import FileIO
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from quarterdeck.cli.exits import UsageError, as_command_error
from quarterdeck.cli.options import check_inherited
from quarterdeck.cli.output import hint, print_line, warn
from quarterdeck.cli.parameters import Argument, Group, Option
from quarterdeck.cli.process import run as run_work
from quarterdeck.common.run_options import in_options
from quarterdeck.common.words import duration, flat, peak_memory
from quarterdeck.config.environment import server_environment
from quarterdeck.config.places.paths import UnsafePathError, quarantine_dir, runtime_dir, state_dir
from quarterdeck.config.places.trusted_files import trusted_files, with_announced
from quarterdeck.trust.configured_servers import record_exposure
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.faults import Dossier
from quarterdeck_protocol.policy_values import Tier
from quarterdeck_sandbox import (
    LaunchError,
    Places,
    Receipt,
    Requester,
    confine,
    known_machine,
    plan_launch,
    run_foreground,
    temporary_folder,
)

from .sandbox_options import Wish, shown_directory, to_policy

group: Final = Group("Try a sandbox policy on any command.")


@group.command("run", verbatim=True)
def run(
    command: Annotated[list[str], Argument(metavar="-- COMMAND…", help="What to run, with its arguments.")],
    wish: Wish,
    tier: Annotated[str | None, Option(metavar="TIER", help="Use at most this tier: landlock or limits.")] = None,
    allow_unsandboxed: Annotated[bool, Option(help="Run it with limits alone where nothing better works.")] = False,
    json: Annotated[Path | None, Option(metavar="FILE", help="Write receipt and dossier there, not on stderr.")] = None,
) -> None:
    """Run a command under a policy; its streams are yours, its exit status is ours.

    Receipt and dossier go to stderr.  125: the sandbox could not be had; 126: the command may not be executed;
    127: there is no such command; 128 plus N: signal N ended it.
    """
    for name in wish.limits:
        if name in _OF_STREAMS:
            raise UsageError(f"--limit {name}: a command's streams are yours; it limits servers only", "leave it out")
    if tier is not None and tier not in tuple(Tier):
        raise UsageError(f"{tier!r} is not a tier", f"the tiers are {', '.join(Tier)}")
    wanted = to_policy(wish.sandbox)
    check_inherited(wish.inherit_env)
    # Opened before anything runs: it can be written, and no program can put a link in its place.
    report = _open(json) if json is not None else None

    async def confined() -> int:
        machine = known_machine() if tier is None else known_machine().capped(Tier(tier))
        user_home = Path(os.path.expanduser("~"))  # noqa: ASYNC240 - asks no disk
        with temporary_folder("quarterdeck-run-") as base:
            os.chmod(base, 0o711)  # noqa: S103 - as root another user runs below it
            home, tmp = Path(base, "home"), Path(base, "tmp")
            for folder in (home, tmp):
                folder.mkdir(mode=0o700)
            config = StdioServerConfig(
                id="run",
                command=command[0],
                args=tuple(command[1:]),
                env=wish.env,
                inherit_env=wish.inherit_env,
                sandbox=wanted,
            )
            environ = server_environment(config, os.environ, home, tmp)
            cwd = shown_directory(wanted, os.getcwd()) or str(home)
            protected = with_announced(trusted_files())
            places = Places(home, tmp, user_home, (str(state_dir()), str(runtime_dir())), protected)
            requester = Requester(places, os.environ, machine, allow_unsandboxed=allow_unsandboxed)
            if wanted.confines_files and wanted.write:
                # A configuration in there is not the user's word alone from now on.
                with as_command_error(
                    OSError,
                    UnsafePathError,
                    remedy="make the state directory writable, or name another: --state-dir DIR",
                    what="the paths that it may write cannot be recorded: ",
                ):
                    record_exposure(state_dir(), wanted.write)
            confinement = confine(plan_launch(config.command, config.args, environ, cwd), wanted.values, requester)
            receipts: list[Receipt] = []

            def on_start(process: Any) -> None:
                receipts.append(process.receipt)
                if report is None:
                    _print_receipt(process.receipt)

            code, dossier = await run_foreground(confinement, (str(tmp),), on_start, str(quarantine_dir()))
            if report is not None:
                _write(report, receipts[0], dossier)
            else:
                _print_dossier(dossier)
            return code

    code: int = _REFUSALS["sandbox_refused"]
    try:
        code = run_work(confined)
    except LaunchError as error:
        print_line(f"quarterdeck: {flat(in_options(str(error)))}", "red", stderr=True)
        code = _REFUSALS.get(error.code, code)
    raise SystemExit(code if code >= 0 else 128 - code)


_REFUSALS: Final = {"sandbox_refused": 125, "not_executable": 126, "command_not_found": 127}
"""As `env`, `timeout` and container engines exit."""

_OF_STREAMS: Final = ("output_bytes", "line_bytes", "partial_line_s")
"""Limits of what a server writes."""


def _print_receipt(receipt: Receipt) -> None:
    user = {None: "", 0: ", as root without capabilities"}.get(receipt.uid, f", as uid {receipt.uid}")
    kind = receipt.bubblewrap or receipt.tier
    hint(f"quarterdeck: sandbox {kind}{user}, network {receipt.network}")
    for line in receipt.shown:
        hint(f"  shows {flat(line)}")
    for gap in receipt.gaps:
        warn(f"  weaker: {flat(in_options(gap))}")


def _print_dossier(dossier: Dossier) -> None:
    ended = f"exit status {dossier.exit_status}" if dossier.signal is None else f"signal {dossier.signal}"
    words = [ended if dossier.limit is None else f"limit {dossier.limit} hit"]
    if dossier.peak_rss_bytes is not None:
        words.append(peak_memory(dossier.peak_rss_bytes, is_sampled=dossier.peak_is_sampled))
    if dossier.cpu_s is not None:
        words.append(f"{dossier.cpu_s:.2f} s of CPU")
    words.append(duration(dossier.uptime_s or 0.0))
    hint(f"quarterdeck: {', '.join(words)}")
    for each in dossier.hints:
        warn(f"  {flat(in_options(each))}")


def _open(path: Path) -> FileIO:
    try:
        report = path.open("wb", buffering=0)
    except OSError as error:
        raise UsageError(f"--json {path}: {error.strerror}", "name a file that you may write") from error
    if report.seekable():
        _write(report, None, None)
    return report


def _write(report: FileIO, receipt: Receipt | None, dossier: Dossier | None) -> None:
    try:
        if stat.S_ISREG(os.fstat(report.fileno()).st_mode):
            report.seek(0)
            report.truncate()
        report.write(msgspec.json.encode({"receipt": receipt, "dossier": dossier}) + b"\n")
    except OSError as error:
        raise UsageError(f"--json {report.name}: {error.strerror}", "name a file on a disk that has room") from error
