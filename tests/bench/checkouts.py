"""Compare calls through `serve` with those of another checkout, by turns: `python tests/bench/checkouts.py CHECKOUT`.

The checkout is a directory with its own `.venv`, made by `git worktree add … COMMIT` and an editable install.  Each
side serves the same echo server on stdio to one raw client; samples alternate, so that a shared machine's moods hit
both alike.  Prints one JSON object: for one call at a time and for a hundred at once the median of each side, in
milliseconds a call and in calls a second, and the ratio of ours to theirs.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pytest
from support.clients.raw_client import RawStdioClient
from support.config.places import row, short_folder, use_places, write_config

from bench.peers import ECHO, ECHO_NAME, TEXT
from bench.rounds import Sample, Table, alternate, p50_of, repeat

CALLS: Final = 100  # of one sample, one after the other
AT_ONCE: Final = 100  # calls that are under way together
ROUNDS_AT_ONCE: Final = 5  # how often a sample sends a hundred and waits for all answers
START_S: Final = 60.0  # maximum seconds until a side has listed the echo server's tool


@contextmanager
def serving(python: Path, arguments: list[str]) -> Iterator[RawStdioClient]:
    """Run a checkout's `serve` in its own directories, and yield its client once the echo tool is listed."""
    with short_folder() as folder, pytest.MonkeyPatch.context() as patch:
        use_places(patch, folder)
        patch.setenv("HOME", str(folder / "home"))
        (folder / "home").mkdir(exist_ok=True)
        config = write_config(folder / "servers.json", **{ECHO: row(ECHO)})
        argv = [str(python), "-m", "quarterdeck.cli", "serve", "--config", str(config), *arguments]
        with RawStdioClient(argv, env=dict(os.environ), cwd=folder, deadline_s=START_S) as client:
            client.initialize()
            while ECHO_NAME not in [tool["name"] for tool in client.list_tools()]:
                pass
            yield client


def one(client: RawStdioClient) -> Sample:
    """Sample the median milliseconds of calls made one after the other."""

    async def call() -> None:
        client.call(ECHO_NAME, text=TEXT)

    return p50_of(call, CALLS)


def hundred(client: RawStdioClient) -> Sample:
    """Sample the calls a second when a hundred are sent before the first answer is read."""

    async def sample() -> float:
        loop = asyncio.get_running_loop()
        started = loop.time()
        for _ in range(ROUNDS_AT_ONCE):
            params = {"name": ECHO_NAME, "arguments": {"text": TEXT}}
            for sent in [client.send("tools/call", params) for _ in range(AT_ONCE)]:
                client.reply(sent)
        return AT_ONCE * ROUNDS_AT_ONCE / (loop.time() - started)

    return sample


async def compare(ours: Path, theirs: Path, arguments: list[str], rounds: int) -> Table:
    """Alternate samples of both sides: ours and theirs one at a time, then ours and theirs a hundred at once."""
    with ExitStack() as stack:
        clients = [stack.enter_context(serving(ours, arguments)), stack.enter_context(serving(theirs, []))]
        singles = await alternate(rounds, *(one(client) for client in clients))
        return [*singles, *await alternate(rounds, *(hundred(client) for client in clients))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="the other checkout, with its .venv")
    parser.add_argument("--daemon", action="store_true", help="ours through the daemon's door, not by `serve --own`")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3, help="fresh processes of both sides")
    given = parser.parse_args()
    arguments = [] if given.daemon else ["--own"]
    theirs = given.checkout.resolve() / ".venv" / "bin" / "python"
    single, old_single, many, old_many = asyncio.run(
        repeat(given.repeats, lambda: compare(Path(sys.executable), theirs, arguments, given.rounds))
    )
    report = {
        "one_ms": [round(median(single), 4), round(median(old_single), 4)],
        "one_ratio": round(median(a / b for a, b in zip(single, old_single, strict=True)), 3),
        "hundred_per_s": [round(median(many), 1), round(median(old_many), 1)],
        "hundred_ratio": round(median(a / b for a, b in zip(many, old_many, strict=True)), 3),
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
