"""Measure clients' calls while the daemon or other processes are killed: `python tests/bench/outages.py WHAT`.

    restarts   kill the daemon (SIGKILL) with eight doors: time until HTTP is served again, refused connections
    replace    repeat `up --replace` during thirty clients' calls, prompts, reads and lists: number of failed requests
    kills      SIGKILL and SIGSTOP random workers, servers, zygotes and daemons under thirty clients of twenty servers:
               wrong, doubled and lost answers, typed faults, and time until `daemon_lost` is reported

Each prints one JSON object, with the machine's load, and on stderr which answers are late: who asked, when the daemon
was killed, and how the server is.  Run them by hand for minutes: `--minutes 5`, `--count 20`.  Two
thirds of the clients are doors; the others use HTTP, half of them in each era.
"""

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx2
import psutil
import pytest
from support.clients.raw_client import CLIENT_INFO, MODERN_VERSION, PeerClosedError, RawStdioClient
from support.config.places import row, short_folder, use_places, write_config
from support.processes.commands import command

from quarterdeck.cli.configure.secret import read_token, token_path
from quarterdeck.daemon.client import ask_daemon
from quarterdeck.daemon.messages import DaemonStatus, Order
from quarterdeck.daemon.place import NoAnswerError, NoDaemonError, daemon_dir
from quarterdeck.daemon.start import log_path

ANSWER_S: Final = 60.0
"""Maximum seconds for any answer; a later one counts as lost."""

LATE_S: Final = 15.0
"""Seconds after which an answer is reported as late, while its client waits on."""

APART_S: Final = 16.0
"""Minimum seconds between two deaths of the daemon: a door gives up at the fifth death within a minute."""

ZYGOTES: Final = 0.05
"""Zygotes' portion of all killed or stopped processes; all servers end with a zygote."""

STOP_S: Final = 10.0
"""Seconds that a process stays stopped: a worker counts as hung before that."""

ENVELOPE: Final = {
    "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
    "io.modelcontextprotocol/clientInfo": CLIENT_INFO,
    "io.modelcontextprotocol/clientCapabilities": {},
}

PROMPT: Final = "test_simple_prompt"
RESOURCE: Final = "test://static-text"

Ask = Callable[[str, dict[str, Any]], dict[str, Any]]
"""A function that makes a request and returns its whole answer."""


class Tally:
    """Outcomes of requests, added by many threads.

    Attributes:
        counts: by outcome; `ok`, `wrong`, `doubled`, `lost`, `cut`, `torn` (lines longer than a pipe takes at once
            that the daemon's death cut; their requests have an answer), and each fault's code.
        lost_s: seconds from the daemon's death to each `daemon_lost`.
        deaths: when the daemon was killed.
        asked: when each client made the request whose answer it waits for, and what that is.
        examples: the first message of each fault.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.lost_s: list[float] = []
        self.examples: dict[str, str] = {}
        self.slowest_s = 0.0
        self.deaths: list[float] = []
        self.asked: dict[int, tuple[float, str]] = {}
        self._lock = threading.Lock()

    def add(self, outcome: str, took_s: float = 0.0, example: str = "") -> None:
        with self._lock:
            self.examples.setdefault(outcome, example)
            self.counts[outcome] += 1
            self.slowest_s = max(self.slowest_s, took_s)
            if outcome == "daemon_lost" and self.deaths:
                self.lost_s.append(time.monotonic() - self.deaths[-1])

    def watch(self, stopped: threading.Event) -> None:
        """Report late answers, each once."""
        told: set[tuple[float, str]] = set()
        while not stopped.wait(1.0):
            late = {each for each in list(self.asked.values()) if each[0] < time.monotonic() - LATE_S} - told
            told |= late
            rows = _command("ps", "--json").get("servers", []) if late else []
            for at, asked in sorted(late):
                deaths = [round(death - at, 2) for death in self.deaths if death > at - 1.0]
                how = [(row["phase"], row["uptime_s"], row["fault"]) for row in rows if f"'{row['id']}__" in asked]
                print(f"late: {asked}; seconds from that to deaths of the daemon: {deaths}; {how}", file=sys.stderr)

    def report(self, **more: object) -> dict[str, object]:
        total = sum(self.counts.values())
        known = ("ok", "wrong", "doubled", "lost", "cut", "torn")
        faults = {name: count for name, count in sorted(self.counts.items()) if name not in known}
        return {
            "requests": total,
            **{name: self.counts[name] for name in known},
            "faults": faults,
            "examples": {name: self.examples[name][:300] for name in faults},
            "faults_percent": round(100 * sum(faults.values()) / max(1, total), 3),
            "slowest_s": round(self.slowest_s, 2),
            "slowest_daemon_lost_s": round(max(self.lost_s, default=0.0), 2),
            "load": round(os.getloadavg()[0], 1),
            **more,
        }


@contextmanager
def daemon(echoes: int, offers: int) -> Iterator[str]:
    """Run the daemon with so many servers in its own directories, and yield its HTTP URL; end it afterwards."""
    with short_folder() as folder, pytest.MonkeyPatch.context() as patch:
        use_places(patch, folder)
        patch.setenv("HOME", str(folder / "home"))
        patch.setenv("XDG_CONFIG_HOME", str(folder / "home" / ".config"))
        patch.delenv("QUARTERDECK_OWN", raising=False)
        rows = {f"s{number}": row("echo") for number in range(echoes)}
        rows |= {f"o{number}": row("conformance", "--legacy") for number in range(offers)}
        write_config(folder / "home" / ".config" / "quarterdeck" / "mcp.json", **rows)
        yield _command("up", "--http", "127.0.0.1:0", "--json")["http"]["url"]
        _command("down", "--json")
        for line in log_path().read_text().splitlines():
            said = json.loads(line)
            if said["level"] == "error" or said["event"].startswith("the daemon listens"):
                print(said["timestamp"], said["event"], str(said.get("exception", ""))[-300:], file=sys.stderr)


def _command(*words: str) -> dict[str, Any]:
    ended = subprocess.run(command(*words), capture_output=True, text=True, check=False)
    if ended.returncode:
        print(ended.stderr, file=sys.stderr)
        return {}
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def running() -> DaemonStatus | None:
    try:
        return ask_daemon(daemon_dir(), Order.STATUS)
    except (NoDaemonError, NoAnswerError):
        return None


class Client:
    """One client in its own thread, which makes one request after the other."""

    def __init__(self, number: int, tally: Tally, url: str, *, echoes: int, offers: int, is_door: bool) -> None:
        self._random = random.Random(number)
        self._tally = tally
        self._echoes, self._offers = echoes, offers
        self._is_modern = bool(number % 2)
        self._number = number
        self._ask: Ask
        if is_door:
            self._door = RawStdioClient(command("serve"), deadline_s=ANSWER_S)
            self._ask = self._by_door
        else:
            token = read_token(token_path())
            self._http = httpx2.Client(headers={"Authorization": f"Bearer {token}"}, timeout=ANSWER_S)
            self._url, self._session, self._ids = url, "", 0
            self._ask = self._over_http
        self._is_door = is_door
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def start(self) -> None:
        """Do the handshake, wait for the servers, and begin to make requests."""
        if self._is_door:
            if self._is_modern:
                self._door.discover()
            else:
                self._door.initialize()
        wanted = {f"s{n}__echo" for n in range(self._echoes)}
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
        if self._is_door:
            for stray in self._door.strays:
                print("doubled", self._number, str(stray)[:300], file=sys.stderr)
                self._tally.add("doubled")
            for _ in self._door.junk:
                self._tally.add("torn")
            self._door.close()
        else:
            self._http.close()

    def _work(self) -> None:
        count = 0
        while not self._stop.is_set():
            count += 1
            method, params, check = self._next(f"{self._number} {count}")
            started = time.monotonic()
            how = f"{'door' if self._is_door else 'http'} {'2026-07-28' if self._is_modern else '2025-11-25'}"
            self._tally.asked[self._number] = started, f"{time.strftime('%X')} {self._number} {how} {method} {params}"
            answer: dict[str, Any] = {}
            try:
                answer = self._ask(method, params)
                outcome = _outcome(answer, check)
            except (TimeoutError, httpx2.TimeoutException):
                outcome = "lost"
                print("lost", self._number, method, params, time.strftime("%H:%M:%S"), file=sys.stderr)
            except httpx2.ConnectError:
                outcome = "http_refused"
            except httpx2.HTTPError as error:
                outcome = f"http_{type(error).__name__}"
            except PeerClosedError:
                self._tally.add("cut")
                return
            finally:
                del self._tally.asked[self._number]
            self._tally.add(outcome, time.monotonic() - started, json.dumps(answer))
            time.sleep(self._random.random() * 0.05)

    def _next(self, text: str) -> tuple[str, dict[str, Any], Callable[[dict[str, Any]], bool]]:
        chance = self._random.random()
        server = f"s{self._random.randrange(self._echoes)}"
        if chance < 0.05 and self._offers:
            return "prompts/get", {"name": f"o0__{PROMPT}"}, lambda result: bool(result["messages"])
        if chance < 0.10 and self._offers:
            return "resources/read", {"uri": RESOURCE}, lambda result: bool(result["contents"])
        if chance < 0.15:
            return "tools/list", {}, lambda result: "tools" in result
        if chance < 0.25:
            seconds = round(self._random.random(), 2)
            call = {"name": f"{server}__slow", "arguments": {"seconds": seconds}}
            return "tools/call", call, lambda result: result["content"][0]["text"] == f"slept {seconds} s"
        call = {"name": f"{server}__echo", "arguments": {"text": text}}
        return "tools/call", call, lambda result: result["content"][0]["text"] == text

    def _by_door(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return self._door.reply(self._door.send(method, params))

    def _over_http(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if self._is_modern:
            named = {"Mcp-Name": params["name"]} if "name" in params else {}
            if "uri" in params:
                named = {"Mcp-Name": params["uri"]}
            headers = {"MCP-Protocol-Version": MODERN_VERSION, "Mcp-Method": method, **named}
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
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT_INFO}
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        answer = self._http.post(self._url, json=body, headers={"Accept": "application/json, text/event-stream"})
        self._session = answer.headers.get("mcp-session-id", "")
        greeted = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        headers = {"Accept": "application/json, text/event-stream", "Mcp-Session-Id": self._session}
        self._http.post(self._url, json=greeted, headers=headers)

    def _post(self, message: dict[str, Any], headers: dict[str, str]) -> tuple[dict[str, Any], int]:
        self._ids += 1
        body = {"jsonrpc": "2.0", "id": self._ids, **message}
        headers = {"Accept": "application/json, text/event-stream", **headers}
        answer = self._http.post(self._url, json=body, headers=headers)
        if answer.status_code != 200:
            return {"id": self._ids, "error": {"code": f"http {answer.status_code}", "message": answer.text}}, (
                answer.status_code
            )
        for line in answer.text.splitlines():
            if line.removeprefix("data: ").startswith("{"):
                found: dict[str, Any] = json.loads(line.removeprefix("data: "))
                if found.get("id") == self._ids:
                    return found, 200
        return {"error": {"code": "no answer in it", "message": answer.text[:200]}}, 200


def _outcome(answer: dict[str, Any], check: Callable[[dict[str, Any]], bool]) -> str:
    if "error" in answer:
        error = answer["error"]
        data = error.get("data") if isinstance(error.get("data"), dict) else {}
        fault = data.get("quarterdeck/fault", data)
        if "daemon ended while" in error.get("message", ""):
            return "daemon_lost"
        return str(fault.get("code") or f"{error['code']}: {error['message'][:80]}")
    result = answer["result"]
    fault = result.get("_meta", {}).get("quarterdeck/fault")
    if fault is not None:
        code, delivery = fault.get("code") or fault.get("kind"), fault.get("delivery", "")
        return "daemon_lost" if code == "daemon_lost" else f"{code} {delivery}"
    try:
        return "ok" if check(result) else "wrong"
    except (KeyError, IndexError, TypeError):
        return "wrong"


@contextmanager
def clients(tally: Tally, url: str, count: int, *, echoes: int, offers: int) -> Iterator[None]:
    found = [
        Client(number, tally, url, echoes=echoes, offers=offers, is_door=number % 3 != 0) for number in range(count)
    ]
    for each in found:
        each.start()
    stopped = threading.Event()
    watching = threading.Thread(target=tally.watch, args=[stopped])
    watching.start()
    try:
        yield
    finally:
        for each in found:
            each.stop()
        for each in found:
            each.close()
        stopped.set()
        watching.join()


def restarts(count: int, doors: int) -> dict[str, object]:
    served, refused, lost = [], 0, []
    with daemon(4, 0) as url, ExitStack() as stack:
        windows = [stack.enter_context(RawStdioClient(command("serve"), deadline_s=ANSWER_S)) for _ in range(doors)]
        for window in windows:
            window.initialize()
            while not any(tool["name"] == "s0__echo" for tool in window.list_tools()):
                time.sleep(0.1)
        where = httpx2.URL(url)
        headers = {"Authorization": f"Bearer {read_token(token_path())}", "MCP-Protocol-Version": MODERN_VERSION}
        headers |= {"Mcp-Method": "tools/list", "Accept": "application/json, text/event-stream"}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": ENVELOPE}}
        for number in range(count):
            found = running()
            assert found is not None
            asked = [window.send("tools/call", {"name": "s0__hang", "arguments": {}}) for window in windows]
            # A request that needs the SDK, which the next daemon imports while it serves HTTP.
            for window in windows:
                window.send("logging/setLevel", {"level": "info"})
            time.sleep(0.5)
            died_at = time.monotonic()
            os.kill(found.pid, signal.SIGKILL)
            stopped = threading.Event()
            knocks = Counter[bool]()

            def knock(stopped: threading.Event = stopped, knocks: Counter[bool] = knocks) -> None:
                while not stopped.is_set():
                    try:
                        socket.create_connection((where.host, where.port or 0), timeout=ANSWER_S).close()
                        knocks[True] += 1
                    except ConnectionRefusedError:
                        knocks[False] += 1
                    time.sleep(0.05)

            knocking = threading.Thread(target=knock)
            knocking.start()
            for window, request in zip(windows, asked, strict=True):
                window.reply(request)
                lost.append(time.monotonic() - died_at)
            assert httpx2.post(url, json=body, headers=headers, timeout=ANSWER_S).status_code == 200
            served.append(round(time.monotonic() - died_at, 2))
            stopped.set()
            knocking.join()
            refused += knocks[False]
            if number + 1 < count:
                time.sleep(max(0.0, APART_S - (time.monotonic() - died_at)))
    return {
        "restarts": count,
        "doors": doors,
        "served_again_s": served,
        "within_2_s": sum(each <= 2.0 for each in served),
        "refused": refused,
        "slowest_daemon_lost_s": round(max(lost), 2),
        "load": round(os.getloadavg()[0], 1),
    }


def replace(count: int, many: int) -> dict[str, object]:
    """Replace the daemon `count` times while `many` clients make requests."""
    tally = Tally()
    taken = []
    with daemon(6, 1) as url, clients(tally, url, many, echoes=6, offers=1):
        for _ in range(count):
            time.sleep(5.0)
            started = time.monotonic()
            _command("up", "--replace", "--json")
            taken.append(round(time.monotonic() - started, 1))
        time.sleep(5.0)
    return tally.report(clients=many, replaced_s=taken)


def kills(minutes: float, many: int, servers: int, seed: int, apart_s: float) -> dict[str, object]:
    """Kill or stop a process about every second, and the daemon every `apart_s` seconds."""
    tally, chance = Tally(), random.Random(seed)
    killed: Counter[str] = Counter()
    with daemon(servers - 1, 1) as url, clients(tally, url, many, echoes=servers - 1, offers=1):
        until, daemon_at = time.monotonic() + 60 * minutes, time.monotonic() + apart_s
        while time.monotonic() < until:
            time.sleep(0.5 + chance.random())
            found = running()
            if found is None:
                continue
            if time.monotonic() >= daemon_at:
                daemon_at = time.monotonic() + apart_s
                tally.deaths.append(time.monotonic())
                os.kill(found.pid, signal.SIGKILL)
                killed["daemon"] += 1
                continue
            try:
                victims = psutil.Process(found.pid).children(recursive=True)
                zygotes = [each for each in victims if "zygote" in " ".join(each.cmdline())]
                if found_one := chance.random() < ZYGOTES:
                    victims = zygotes
                else:
                    victims = [each for each in victims if each not in zygotes]
                victim = chance.choice(victims)
                killed["zygotes"] += found_one
                stops = chance.random() < 0.3
                victim.send_signal(signal.SIGSTOP if stops else signal.SIGKILL)
                if stops:  # a server that stays stopped keeps a call until its deadline
                    threading.Timer(STOP_S, _go_on, [victim]).start()
                killed[f"{'stopped' if stops else 'killed'}"] += 1
            except (psutil.Error, IndexError):
                continue
    return tally.report(clients=many, servers=servers, minutes=minutes, apart_s=apart_s, killed=dict(killed))


def _go_on(victim: psutil.Process) -> None:
    with suppress(psutil.Error):
        victim.resume()


def main() -> None:
    parser = argparse.ArgumentParser(description="Calls while the daemon, or anything, is killed or replaced.")
    parser.add_argument("what", choices=("restarts", "replace", "kills"))
    parser.add_argument("--count", type=int, default=3, help="of restarts or replacements")
    parser.add_argument("--minutes", type=float, default=0.5, help="of kills")
    parser.add_argument("--clients", type=int, default=30)
    parser.add_argument("--doors", type=int, default=8, help="of restarts")
    parser.add_argument("--servers", type=int, default=20, help="of kills")
    parser.add_argument("--apart", type=float, default=APART_S, help="seconds between deaths of the daemon, by kills")
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args()
    match told.what:
        case "restarts":
            found = restarts(told.count, told.doors)
        case "replace":
            found = replace(told.count, told.clients)
        case _:
            found = kills(told.minutes, told.clients, told.servers, told.seed, max(APART_S, told.apart))
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
