"""Call public servers that work with a user's files, before and after grants: `granted_servers.py [WORD …]`.

Each server, or each whose line has one of the words, is called three times in a home with documents, a repository and
secrets: by itself; through Quarterdeck after `config import --yes`; and, if a call failed, once more after
`suggest --apply --yes`.  A call works if its answer has the words that it should.  Prints one JSON object a server,
then the counts, and every proposal that names a secret, a parent of the home, a client's file, git's own files
to write, or our own place.  `npx`, `uvx`, `git` and `sqlite3` are those of the PATH.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.clients.raw_client import JsonObject, PeerClosedError, RawStdioClient, RpcError
from support.config.places import short_folder, write_config
from support.processes.commands import command

START_S: Final = 180.0
"""A runner may have to install its package first, and the machine may be busy."""

CALL_S: Final = 60.0

ID: Final = "s"
"""Of the server in every configuration."""

HOMES: Final = "/home" if os.access("/home", os.W_OK) else "/var/tmp"
"""Where a home is made: some servers refuse folders of the system."""

CLIENT_FILE: Final = ".config/Claude/claude_desktop_config.json"

OWN: Final = ("state", "runtime", "data")
"""Quarterdeck's own places, below a trial's folder."""

MAKE_DATA: Final = """
mkdir data && sqlite3 data/shop.db "create table goods (name text); insert into goods values ('hello')"
cd projects/repo && git init -q && git add a.js && git -c user.name=a -c user.email=a@b commit -qm hi
"""

SECRETS: Final = (".ssh", ".aws", ".env", "projects/repo/.env")
"""What no proposal may name, or lie in; below the home."""


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call of a tool, and words of an answer that shows that it worked; `~/` in its arguments is the home."""

    tool: str
    arguments: dict[str, Any] = {}
    shows: str = ""

    @property
    def name(self) -> str:
        """The call, as it is shown."""
        return f"{self.tool} {json.dumps(self.arguments, ensure_ascii=False)}"[:200]


class Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A public server as people write it, and typical calls; `lures` ask for what no proposal may name."""

    line: str
    calls: tuple[Call, ...]
    env: dict[str, str] = {}
    lures: tuple[Call, ...] = ()


class Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is tried, and the texts of the home's files, by path."""

    files: dict[str, str]
    server: tuple[Server, ...]


DATA: Final = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=Data)


def environ_of(root: Path) -> dict[str, str]:
    """Return the variables of a user below `root`, whose package runners have their caches already."""
    caches = {"npm_config_cache": str(Path.home() / ".npm"), "UV_CACHE_DIR": str(Path.home() / ".cache/uv")}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("QUARTERDECK_")}
    own = {f"QUARTERDECK_{kind.upper()}_DIR": str(root / kind) for kind in OWN}
    return {**caches, **inherited, **own, "HOME": str(root / "home")}


def make_home(home: Path, server: Server) -> JsonObject:
    """Make the home of a user who has one server in a client's file; return its row."""
    for name, text in DATA.files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(("sh", "-ec", MAKE_DATA), cwd=home, check=True)
    runner, *args = in_home(shlex.split(server.line), home)
    row = {"command": runner, "args": args, "env": in_home(server.env, home)}
    write_config(home / CLIENT_FILE, **{ID: row})
    return row


def in_home(value: Any, home: Path) -> Any:
    """Return a value with the user's home in place of each `~`."""
    return json.loads(json.dumps(value).replace("~/", f"{home}/"))


def tried(server: Server) -> JsonObject:
    """Return what one server's trial shows."""
    with short_folder(0o755, HOMES) as root:
        home = root / "home"
        row = make_home(home, server)
        words, env = [row["command"], *row["args"]], {**environ_of(root), **row["env"]}
        report: JsonObject = {"line": server.line, "direct": answers(words, env, home, server.calls)}
        shutil.rmtree(home)
        make_home(home, server)
        return report | _granted(server, root)


def _granted(server: Server, root: Path) -> JsonObject:
    environ, home, words = environ_of(root), root / "home", command("serve", "--own", "--settle", f"{START_S:g}")
    imported = _run(environ, "config", "import", "claude-desktop", "--yes", "--json")
    needs = [(need["key"], need["value"]) for each in imported["needs"] for need in each["needs"]]
    report: JsonObject = {"problems": [problem for each in imported["needs"] for problem in each["problems"]]}
    report["imported"] = answers(words, environ, home, [*server.calls, *server.lures], f"{ID}__")
    proposals = [(each["key"], each["path"]) for each in _run(environ, "suggest", ID, "--json")]
    report |= {"given": list(map(" ".join, needs)), "suggested": list(map(" ".join, proposals))}
    failed = [call for call in server.calls if not report["imported"][call.name]["works"]]
    if failed and proposals:
        subprocess.run(command("suggest", ID, "--apply", "--yes"), env=environ, stdout=sys.stderr, check=False)
        report["after"] = answers(words, environ, home, failed, f"{ID}__")
    report["bad"] = [f"{key} {path}" for key, path in needs + proposals if is_bad(key, path, root)]
    return report


def is_bad(key: str, path: str, root: Path) -> bool:
    """Return whether a proposal is a secret, a parent of the home, a client's file, our own place, or git's hooks."""
    real = Path(os.path.realpath(path))
    kept = [*(root / "home" / name for name in (*SECRETS, CLIENT_FILE)), *(root / kind for kind in OWN)]
    if any(real.is_relative_to(each) for each in kept) or (key == "write" and ".git" in real.parts):
        return True
    return any(each.is_relative_to(real) for each in (root / "home", *kept) if each.name != ".env")


def _run(environ: Mapping[str, str], *words: str) -> Any:
    return json.loads(subprocess.run(command(*words), env=environ, stdout=subprocess.PIPE, check=False).stdout)


def answers(
    words: Sequence[str], env: Mapping[str, str], cwd: Path, calls: Sequence[Call], prefix: str = ""
) -> dict[str, JsonObject]:
    """Return whether each call works, by its name, and the answers of those that do not."""
    with RawStdioClient(words, env=env, cwd=cwd, deadline_s=START_S + CALL_S) as client:
        try:
            client.initialize()
            client.list_tools()
        except (RpcError, TimeoutError, PeerClosedError) as error:
            said = f"{error}: {client.stderr_text()[-1500:]}"
            return {call.name: {"works": False, "answer": said} for call in calls}
        return {call.name: _answer(client, call, prefix, cwd) for call in calls}


def _answer(client: RawStdioClient, call: Call, prefix: str, home: Path) -> JsonObject:
    try:
        result = client.call(f"{prefix}{call.tool}", CALL_S, **in_home(call.arguments, home))
    except (RpcError, TimeoutError, PeerClosedError) as error:
        return {"works": False, "answer": str(error)[:600]}
    text = json.dumps(result, ensure_ascii=False)
    works = not result.get("isError") and call.shows in text
    return {"works": works} if works else {"works": works, "answer": text[:1500]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only servers whose line has one of them")
    parser.add_argument("--at-once", type=int, default=1, help="how many are tried beside one another")
    given = parser.parse_args()
    chosen = [each for each in DATA.server if not given.words or any(word in each.line for word in given.words)]
    counts = dict.fromkeys(("direct", "imported", "after"), 0)
    bad: list[str] = []
    with ThreadPoolExecutor(given.at_once) as pool:
        for server, report in zip(chosen, pool.map(tried, chosen), strict=True):
            print(json.dumps(report), flush=True)
            for call in server.calls:
                step = {each: report.get(each, {}).get(call.name, {}).get("works", False) for each in counts}
                counts["direct"] += step["direct"]
                counts["imported"] += step["direct"] and step["imported"]
                counts["after"] += step["direct"] and (step["imported"] or step["after"])
            bad += [f"{server.line}: {path}" for path in report["bad"]]
    print(json.dumps({**counts, "bad": bad}))


if __name__ == "__main__":
    main()
