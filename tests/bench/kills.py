"""Kill workers, servers, zygotes and daemons under thirty clients of twenty servers: `python tests/bench/kills.py`.

About every second a process chosen at random is killed (SIGKILL) or stopped for a while, and the daemon now and then.
Two thirds of the clients are doors; the others use HTTP, half of them in each era.  Prints one JSON object: wrong,
doubled and lost answers, typed faults, and the time until `daemon_lost` is reported.  Run it by hand for minutes:
`--minutes 5`.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx2
import psutil
import pytest
from support.clients.raw_client import CLIENT_INFO, LEGACY_VERSION, MODERN_VERSION, PeerClosedError, RawStdioClient
from support.config.places import row, short_folder, use_places, write_config
from support.processes.commands import command

from quarterdeck.cli.configure.secret import read_token, token_path
from quarterdeck.daemon.client import ask_daemon
from quarterdeck.daemon.messages import DaemonStatus, Order
from quarterdeck.daemon.place import NoAnswerError, NoDaemonError, daemon_dir

ANSWER_S: Final = 60.0
"""Maximum seconds for any answer; a later one counts as lost."""

APART_S: Final = 16.0
"""Seconds between two deaths of the daemon: a door gives up at the fifth death within a minute."""

ZYGOTES: Final = 0.05
"""Zygotes' portion of all killed or stopped processes; all servers end with a zygote."""

STOP_S: Final = 10.0
"""Seconds that a process stays stopped: a worker counts as hung before that."""

ACCEPT: Final = {"Accept": "application/json, text/event-stream"}

ENVELOPE: Final = {
    "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
    "io.modelcontextprotocol/clientInfo": CLIENT_INFO,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Tally:
    """Outcomes of calls, added by many threads.

    Attributes:
        counts: by outcome; `ok`, `wrong`, `doubled`, `lost`, `cut`, `torn` (lines longer than a pipe takes at once
            that the daemon's death cut; their requests have an answer), and each fault's code.
        lost_s: seconds from the daemon's death to each `daemon_lost`.
        died_at: when the daemon was killed last.
        examples: the first message of each fault.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.lost_s: list[float] = []
        self.examples: dict[str, str] = {}
        self.slowest_s = 0.0
        self.died_at = 0.0
        self._lock = threading.Lock()

    def add(self, outcome: str, took_s: float = 0.0, example: str = "") -> None:
        with self._lock:
            self.examples.setdefault(outcome, example)
            self.counts[outcome] += 1
            self.slowest_s = max(self.slowest_s, took_s)
            if outcome == "daemon_lost" and self.died_at:
                self.lost_s.append(time.monotonic() - self.died_at)

    def report(self) -> dict[str, object]:
        known = ("ok", "wrong", "doubled", "lost", "cut", "torn")
        faults = {name: count for name, count in sorted(self.counts.items()) if name not in known}
        return {
            "calls": self.counts.total(),
            **{name: self.counts[name] for name in known},
            "faults": faults,
            "examples": {name: self.examples[name][:300] for name in faults},
            "slowest_s": round(self.slowest_s, 2),
            "slowest_daemon_lost_s": round(max(self.lost_s, default=0.0), 2),
            "load": round(os.getloadavg()[0], 1),
        }


@contextmanager
def daemon(servers: int) -> Iterator[str]:
    """Run the daemon with so many servers in its own directories, and yield its HTTP URL; end it afterwards."""
    with short_folder() as folder, pytest.MonkeyPatch.context() as patch:
        use_places(patch, folder)
        patch.setenv("HOME", str(folder / "home"))
        patch.setenv("XDG_CONFIG_HOME", str(folder / "home" / ".config"))
        patch.delenv("QUARTERDECK_OWN", raising=False)
        rows = {f"s{number}": row("echo") for number in range(servers)}
        write_config(folder / "home" / ".config" / "quarterdeck" / "mcp.json", **rows)
        up = subprocess.run(command("up", "--http", "127.0.0.1:0", "--json"), stdout=subprocess.PIPE, check=True)
        try:
            yield json.loads(up.stdout)["http"]["url"]
        finally:
            subprocess.run(command("down", "--json"), stdout=subprocess.DEVNULL, check=False)


def running() -> DaemonStatus | None:
    try:
        return ask_daemon(daemon_dir(), Order.STATUS)
    except (NoDaemonError, NoAnswerError):
        return None


class HttpClient:
    """A client over HTTP, which opens another session where its own was lost."""

    def __init__(self, url: str, *, is_modern: bool) -> None:
        token = read_token(token_path())
        self._http = httpx2.Client(headers={"Authorization": f"Bearer {token}", **ACCEPT}, timeout=ANSWER_S)
        self._url, self._is_modern, self._session, self._ids = url, is_modern, "", 0

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if self._is_modern:
            headers = {"MCP-Protocol-Version": MODERN_VERSION, "Mcp-Method": method}
            headers |= {"Mcp-Name": params["name"]} if "name" in params else {}
            return self._post({"method": method, "params": {**params, "_meta": ENVELOPE}}, headers)[0]
        for _ in range(2):
            if not self._session:
                self._greet()
            answer, status = self._post({"method": method, "params": params}, {"Mcp-Session-Id": self._session})
            if status != 404:
                break
            self._session = ""  # the protocol requires a new session after a lost one
        return answer

    def _greet(self) -> None:
        params = {"protocolVersion": LEGACY_VERSION, "capabilities": {}, "clientInfo": CLIENT_INFO}
        answer = self._http.post(self._url, json={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        self._session = answer.headers.get("mcp-session-id", "")
        greeted = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        self._http.post(self._url, json=greeted, headers={"Mcp-Session-Id": self._session})

    def _post(self, message: dict[str, Any], headers: dict[str, str]) -> tuple[dict[str, Any], int]:
        self._ids += 1
        answer = self._http.post(self._url, json={"jsonrpc": "2.0", "id": self._ids, **message}, headers=headers)
        if answer.status_code != 200:
            error = {"code": f"http {answer.status_code}", "message": answer.text}
            return {"error": error}, answer.status_code
        for line in answer.text.splitlines():
            if line.removeprefix("data: ").startswith("{"):
                found: dict[str, Any] = json.loads(line.removeprefix("data: "))
                if found.get("id") == self._ids:
                    return found, 200
        return {"error": {"code": "no answer in it", "message": answer.text[:200]}}, 200

    def close(self) -> None:
        self._http.close()


class Client:
    """One client in its own thread, which makes one call after the other."""

    def __init__(self, number: int, tally: Tally, url: str, servers: int) -> None:
        self._random = random.Random(number)
        self._number, self._tally, self._servers = number, tally, servers
        self._door = RawStdioClient(command("serve"), deadline_s=ANSWER_S) if number % 3 else None
        self._http = HttpClient(url, is_modern=bool(number % 2))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def start(self) -> None:
        """Do the handshake, wait for the servers, and begin to make calls."""
        if self._door is not None:
            _ = self._door.discover() if self._number % 2 else self._door.initialize()
        wanted = {f"s{n}__echo" for n in range(self._servers)}
        until = time.monotonic() + ANSWER_S
        while time.monotonic() < until:
            listed = self._ask("tools/list", {}).get("result", {}).get("tools", [])
            if wanted <= {tool["name"] for tool in listed}:
                break
            time.sleep(0.2)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def close(self) -> None:
        """Wait until it has stopped, and disconnect."""
        self._thread.join()
        self._http.close()
        if self._door is not None:
            for stray in self._door.strays:
                self._tally.add("doubled", example=json.dumps(stray))
            for _ in self._door.junk:
                self._tally.add("torn")
            self._door.close()

    def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if self._door is None:
            return self._http.ask(method, params)
        return self._door.reply(self._door.send(method, params))

    def _work(self) -> None:
        count = 0
        while not self._stop.is_set():
            count += 1
            call, expected = self._next(f"{self._number} {count}")
            started = time.monotonic()
            answer: dict[str, Any] = {}
            try:
                answer = self._ask("tools/call", call)
                outcome = _outcome(answer, expected)
            except (TimeoutError, httpx2.TimeoutException):
                outcome = "lost"
            except httpx2.HTTPError as error:
                outcome = f"http_{type(error).__name__}"
            except PeerClosedError:
                self._tally.add("cut")
                return
            self._tally.add(outcome, time.monotonic() - started, json.dumps(answer))
            time.sleep(self._random.random() * 0.05)

    def _next(self, text: str) -> tuple[dict[str, Any], str]:
        """A call that takes up to a second, or an echo; and what its result says."""
        server = f"s{self._random.randrange(self._servers)}"
        if self._random.random() < 0.1:
            seconds = round(self._random.random(), 2)
            return {"name": f"{server}__slow", "arguments": {"seconds": seconds}}, f"slept {seconds} s"
        return {"name": f"{server}__echo", "arguments": {"text": text}}, text


def _outcome(answer: dict[str, Any], expected: str) -> str:
    if "error" in answer:
        error = answer["error"]
        data = error.get("data") if isinstance(error.get("data"), dict) else {}
        fault = data.get("quarterdeck/fault", data)
        if "daemon ended while" in error.get("message", ""):
            return "daemon_lost"
        return str(fault.get("code") or f"{error['code']}: {error['message'][:80]}")
    fault = answer["result"].get("_meta", {}).get("quarterdeck/fault")
    if fault is not None:
        code, delivery = fault.get("code") or fault.get("kind"), fault.get("delivery", "")
        return "daemon_lost" if code == "daemon_lost" else f"{code} {delivery}"
    [block] = answer["result"].get("content") or [{}]
    return "ok" if block.get("text") == expected else "wrong"


@contextmanager
def clients(tally: Tally, url: str, count: int, servers: int) -> Iterator[None]:
    found = [Client(number, tally, url, servers) for number in range(count)]
    for each in found:
        each.start()
    try:
        yield
    finally:
        for each in found:
            each.stop()
        for each in found:
            each.close()


def kill(tally: Tally, chance: random.Random, minutes: float) -> dict[str, int]:
    """Kill or stop a process about every second, and the daemon every `APART_S` seconds; how many of each."""
    killed: Counter[str] = Counter()
    until, daemon_at = time.monotonic() + 60 * minutes, time.monotonic() + APART_S
    while time.monotonic() < until:
        time.sleep(0.5 + chance.random())
        found = running()
        if found is None:
            continue
        if time.monotonic() >= daemon_at:
            daemon_at = time.monotonic() + APART_S
            tally.died_at = time.monotonic()
            os.kill(found.pid, signal.SIGKILL)
            killed["daemon"] += 1
            continue
        with suppress(psutil.Error, IndexError):
            below = psutil.Process(found.pid).children(recursive=True)
            zygotes = [each for each in below if "zygote" in " ".join(each.cmdline())]
            is_zygote = chance.random() < ZYGOTES
            victim = chance.choice(zygotes if is_zygote else [each for each in below if each not in zygotes])
            killed["zygotes"] += is_zygote
            stops = chance.random() < 0.3
            victim.send_signal(signal.SIGSTOP if stops else signal.SIGKILL)
            if stops:  # a server that stays stopped keeps a call until its deadline
                threading.Timer(STOP_S, _go_on, [victim]).start()
            killed["stopped" if stops else "killed"] += 1
    return dict(killed)


def _go_on(victim: psutil.Process) -> None:
    with suppress(psutil.Error):
        victim.resume()


def main() -> None:
    parser = argparse.ArgumentParser(description="Calls while anything is killed.")
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--clients", type=int, default=30)
    parser.add_argument("--servers", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args()
    tally = Tally()
    with daemon(told.servers) as url, clients(tally, url, told.clients, told.servers):
        killed = kill(tally, random.Random(told.seed), told.minutes)
    print(json.dumps({**tally.report(), **vars(told), "killed": killed}, indent=2))


if __name__ == "__main__":
    main()
