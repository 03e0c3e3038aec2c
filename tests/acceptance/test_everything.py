"""`@modelcontextprotocol/server-everything` through us against direct, over stdio and over HTTP: each method, raw JSON.

Two answers are the same if they are but for what no two answers share: the time of day, the ids of tasks, and the
prefix of a name where servers are told apart by it.
"""

import json
import os
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from support.clients.era_client import Era, EraClient
from support.clients.features import questions_of, tried
from support.clients.raw_client import JsonObject
from support.config.places import short_folder, use_places, write_config
from support.processes.commands import DEADLINE_S, PATIENT, popen_forked
from support.processes.leftovers import no_leftovers
from support.servers.real_servers import Installed, install, shared_folder
from support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.nightly

NAME: Final = "everything"

PREFIX: Final = f"{NAME}__"

CHANGING: Final = re.compile(r"\d{1,2}:\d\d:\d\d(?: [AP]M)?|\d{4}-\d\d-\d\dT[\d:.]+Z|(?<=\")[0-9a-f]{32}(?=\")")
"""A time of day, a moment, and the id of a task."""

DOCUMENT: Final = "demo://resource/static/document/features.md"
DYNAMIC: Final = "demo://resource/dynamic/text/1"

CALLS: Final[dict[str, JsonObject]] = {
    "echo": {"message": "hello"},
    "get-annotated-message": {"messageType": "error", "includeImage": True},
    "get-resource-links": {"count": 2},
    "get-resource-reference": {"resourceType": "Text", "resourceId": 1},
    "get-structured-content": {"location": "Chicago"},
    "get-sum": {"a": 1, "b": 2},
    "get-tiny-image": {},
    "trigger-long-running-operation": {"duration": 0.1, "steps": 2},
}
"""Without `get-env`, for the environment of a sandbox is another, and what fetches from the internet."""

Method = Callable[["Client"], object]


class Client(EraClient):
    """A client whose servers' names may have a prefix; it says and shows them without."""

    def __init__(self, argv: list[str], prefix: str = "", era: Era = Era.OLD, **options: Any) -> None:
        """Start the child, greet it, and wait until it has added the tools for what we can do."""
        self.prefix = prefix
        super().__init__(argv, era, deadline_s=PATIENCE_S, **options)
        eventually(lambda: len(self.pages("tools/list", "tools")) >= len(CALLS) + 8, PATIENCE_S, "all tools")

    def ask(self, method: str, /, **params: Any) -> JsonObject:
        """See `EraClient`."""
        if method in ("tools/call", "prompts/get"):
            params["name"] = self.prefix + params["name"]
        result = super().ask(method, **params)
        for named in (*result.get("tools", ()), *result.get("prompts", ())):
            named["name"] = named["name"].removeprefix(self.prefix)
        return result


def _listed(method: str, key: str) -> Method:
    return lambda client: sorted(client.pages(method, key), key=json.dumps)


def _called(client: Client) -> object:
    return {name: client.ask("tools/call", name=name, arguments=given) for name, given in CALLS.items()}


def _asked(tool: str, **arguments: Any) -> Method:
    def see(client: Client) -> object:
        client.questions.clear()
        return client.ask("tools/call", name=tool, arguments=arguments), questions_of(client)

    return see


def _read(client: Client) -> object:
    return [client.ask("resources/read", uri=uri) for uri in (DOCUMENT, DYNAMIC)]


def _updated(client: Client) -> object:
    client.ask("resources/subscribe", uri=DYNAMIC)
    client.ask("tools/call", name="toggle-subscriber-updates", arguments={})
    client.notifications.insert(0, client.notification("notifications/resources/updated"))
    client.ask("tools/call", name="toggle-subscriber-updates", arguments={})
    client.ask("resources/unsubscribe", uri=DYNAMIC)
    return client.heard("notifications/resources/updated")[0]


def _got(client: Client) -> object:
    given: dict[str, JsonObject] = {
        "simple-prompt": {},
        "args-prompt": {"arguments": {"city": "Paris"}},
        "completable-prompt": {"arguments": {"department": "Sales", "name": "David"}},
        "resource-prompt": {"arguments": {"resourceType": "Text", "resourceId": "1"}},
    }
    return [client.ask("prompts/get", name=name, **rest) for name, rest in given.items()]


def _completed(client: Client) -> object:
    prompt = {"type": "ref/prompt", "name": f"{client.prefix}completable-prompt"}
    template = {"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"}
    context = {"arguments": {"department": "Sales"}}
    return [
        client.ask("completion/complete", ref=prompt, argument={"name": "department", "value": "S"}),
        client.ask("completion/complete", ref=prompt, argument={"name": "name", "value": ""}, context=context),
        client.ask("completion/complete", ref=template, argument={"name": "resourceId", "value": "1"}),
    ]


def _logged(client: Client) -> object:
    told = client.ask("logging/setLevel", level="debug")
    client.heard("notifications/message")
    client.ask("tools/call", name="toggle-simulated-logging", arguments={})
    line = client.notification("notifications/message")["params"]
    client.ask("tools/call", name="toggle-simulated-logging", arguments={})
    return told, sorted({"level", "data"} & line.keys())  # which line is by chance


def _progressed(client: Client) -> object:
    given = {"name": "trigger-long-running-operation", "arguments": {"duration": 0.2, "steps": 2}}
    client.ask("tools/call", **given, _meta={"progressToken": "mine"})
    return client.heard("notifications/progress")


def _cancelled(client: Client) -> object:
    given = {"name": f"{client.prefix}trigger-long-running-operation", "arguments": {"duration": 30, "steps": 1}}
    request_id = client.send("tools/call", given)
    client.cancel(request_id)
    return client.ask("tools/call", name="echo", arguments={"message": "still there"}), client.strays


def _task(*, asks: bool) -> Method:
    def see(client: Client) -> object:
        client.questions.clear()
        given = {"name": "simulate-research-query", "arguments": {"topic": "python", "ambiguous": asks}}
        created = client.ask("tools/call", **given, task={"ttl": 60_000})
        task_id = created["task"]["taskId"]
        result = client.ask("tasks/result", taskId=task_id)
        return created, result, client.ask("tasks/get", taskId=task_id), questions_of(client)

    return see


def _cancelled_task(client: Client) -> object:
    given = {"name": "simulate-research-query", "arguments": {"topic": "cats"}}
    task_id = client.ask("tools/call", **given, task={})["task"]["taskId"]
    cancelled = client.ask("tasks/cancel", taskId=task_id)
    is_listed = [task["status"] for task in client.pages("tasks/list", "tasks") if task["taskId"] == task_id]
    errors = [client.error("tasks/cancel", taskId=task_id)["code"], client.error("tasks/get", taskId="x")["code"]]
    return {**cancelled, "statusMessage": ""}, is_listed, errors


METHODS: Final[dict[str, Method]] = {
    "tools/list": _listed("tools/list", "tools"),
    "tools/call": _called,
    "resources/list": _listed("resources/list", "resources"),
    "resources/templates/list": _listed("resources/templates/list", "resourceTemplates"),
    "resources/read": _read,
    "resources/subscribe": _updated,
    "prompts/list": _listed("prompts/list", "prompts"),
    "prompts/get": _got,
    "completion/complete": _completed,
    "logging/setLevel": _logged,
    "notifications/progress": _progressed,
    "notifications/cancelled": _cancelled,
    # Only the answer: it asks once, when it likes.
    "roots/list": lambda client: client.ask("tools/call", name="get-roots-list", arguments={}),
    "sampling/createMessage": _asked("trigger-sampling-request", prompt="Hello", maxTokens=5),
    "elicitation/create": _asked("trigger-elicitation-request"),
    "elicitation/create, url": _asked(
        "trigger-url-elicitation", url="https://example.com/in", message="Sign in", elicitationId="e1"
    ),
    "tasks/result": _task(asks=False),
    "tasks/result, asking": _task(asks=True),
    "tasks/list, tasks/cancel": _cancelled_task,
}

DIFFERENT: Final[dict[tuple[str, str], str]] = {}
"""By transport and method, why it is another through us."""


@contextmanager
def over_stdio(found: Installed, folder: Path, basetemp: Path, era: Era = Era.OLD) -> Iterator[Client]:
    """A client of a `run`."""
    wish = ["--network", "none", "--read", str(shared_folder(basetemp))]
    with Client(["run", "--own", *wish, "--", *found.argv], era=era, popen=popen_forked) as client:
        yield client


@contextmanager
def over_http(found: Installed, folder: Path, basetemp: Path, era: Era = Era.OLD) -> Iterator[Client]:
    """A client of a `serve` whose server is behind an address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = {**os.environ, "PORT": str(port)}
    out = subprocess.DEVNULL
    with subprocess.Popen([*found.argv, "streamableHttp"], env=env, stdout=out, stderr=out) as server:
        try:
            eventually(lambda: _listens(port), PATIENCE_S, "the server on HTTP")
            config = write_config(folder / "mcp.json", **{NAME: {"url": f"http://127.0.0.1:{port}/mcp"}})
            words = ["serve", "--own", "--config", str(config), *PATIENT, "--name-budget", "0"]
            with Client(words, PREFIX, era, popen=popen_forked) as client:
                yield client
        finally:
            server.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


WAYS: Final = {"stdio": over_stdio, "http": over_http}


@pytest.fixture(scope="module", params=WAYS)
def clients(
    request: pytest.FixtureRequest, own_directories: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Client, Client]]:
    basetemp = tmp_path_factory.getbasetemp()
    found = install(NAME, basetemp)
    if found.missing:
        pytest.skip(found.missing)
    folder = tmp_path_factory.mktemp("everything")
    reached = WAYS[request.param](found, folder, basetemp)
    with no_leftovers(DEADLINE_S), Client([*found.argv]) as direct, reached as ours:
        yield request.param, direct, ours


@pytest.mark.parametrize("method", METHODS)
def test_a_method_answers_as_it_does_without_us(clients: tuple[str, Client, Client], method: str) -> None:
    """The server that shows all of the protocol would show less of it, or another one."""
    way, direct, ours = clients
    expected, seen = (_settled(tried(METHODS[method], client)) for client in (direct, ours))
    if (way, method) in DIFFERENT:
        assert seen != expected, "it is the same: take it out of DIFFERENT"
    else:
        assert seen == expected


@pytest.mark.parametrize("way", WAYS)
def test_its_tool_for_tasks_alone_answers_a_client_of_the_other_era(
    way: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A client of 2026-07-28 would be listed a tool that never works, of the servers that most people run."""
    basetemp = tmp_path_factory.getbasetemp()
    found = install(NAME, basetemp)
    if found.missing:
        pytest.skip(found.missing)
    folder = tmp_path_factory.mktemp("everything")
    with ExitStack() as stack:
        stack.enter_context(no_leftovers(DEADLINE_S))
        # The module's are taken while the clients of the other tests are there.
        use_places(stack.enter_context(pytest.MonkeyPatch.context()), stack.enter_context(short_folder()))
        client = stack.enter_context(WAYS[way](found, folder, basetemp, Era.NEW))
        given = {"name": "simulate-research-query", "arguments": {"topic": "python", "ambiguous": True}}
        done = client.ask("tools/call", **given)
        assert "Research" in done["content"][0]["text"]
        # The server asks for the roots once, when it likes.
        assert [method for method, _ in client.questions if method != "roots/list"] == ["elicitation/create"]


def _settled(seen: object) -> object:
    return repr(seen) if isinstance(seen, Exception) else json.loads(CHANGING.sub("…", json.dumps(seen)))
