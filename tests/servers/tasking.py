"""Pretends to be a server whose calls can be tasks, in both eras: 2025-11-25 in its core, 2026-07-28 as an extension.

The first request says the era; `--legacy` has it speak the older one alone, `--modern` the newer one.  A task works
until the tool `finish` ends it, so that whoever looks knows what there is to see; one that `asks` wants to know a name
first.

A call that is no task may have the `way` `ask`: of the older era it is answered when a question is; and `pair`: two of
them wait for each other before the server asks.

Its other ways, by the argument `way` of a tool: `soon` (the task is done when somebody has looked twice, or waits);
and hostile ones: `huge_id`, `control_id`, `same_id` (each task has the id of the first), `no_id`, `another` (the state
of another task than was asked for).
"""

import sys
from typing import Any, Final

import wire
from wire import JsonObject

EXTENSION: Final = "io.modelcontextprotocol/tasks"
RELATED: Final = "io.modelcontextprotocol/related-task"
PREFIX: Final = "io.modelcontextprotocol/"
MODERN: Final = "2026-07-28"
LEGACY: Final = "2025-11-25"
MISSING_CAPABILITY: Final = -32021
UNDER_WAY: Final = "It is under way."
MOMENT: Final = "2026-11-23T10:00:00Z"
ENDED: Final = ("completed", "failed", "cancelled")

INFO: Final[JsonObject] = {"name": "tasking", "version": "1.0.0"}

QUESTION: Final[JsonObject] = {
    "message": "What is your name?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}

TEXT: Final[JsonObject] = {"type": "object", "properties": {"text": {"type": "string"}, "way": {"type": "string"}}}

TOOLS: Final[list[JsonObject]] = [
    {"name": "work", "description": "Work.", "inputSchema": TEXT, "execution": {"taskSupport": "optional"}},
    {"name": "asks", "description": "Work, and ask.", "inputSchema": TEXT, "execution": {"taskSupport": "optional"}},
    {"name": "only", "description": "Work as a task.", "inputSchema": TEXT, "execution": {"taskSupport": "required"}},
    {"name": "plain", "description": "No task.", "inputSchema": TEXT},
    {
        "name": "finish",
        "description": "End a task, or the server itself.",
        "inputSchema": {"type": "object", "properties": {"task": {"type": "string"}, "how": {"type": "string"}}},
    },
]

PLAIN_TOOLS: Final = [{key: value for key, value in tool.items() if key != "execution"} for tool in TOOLS]
"""The same in 2026-07-28, which does not say beforehand which calls become tasks."""


class Server:
    """The server, and its tasks by id."""

    def __init__(self, *, is_legacy: bool, knows_initialize: bool) -> None:
        self.is_legacy = is_legacy
        self.knows_initialize = knows_initialize
        self.is_modern = False
        self.prefix = "task"
        self.tasks: dict[str, JsonObject] = {}
        self.results: dict[str, JsonObject] = {}
        self.ways: dict[str, str] = {}
        self.waiting: dict[str, list[Any]] = {}
        self.questions: dict[str, str] = {}
        self.looks: dict[str, int] = {}
        self.tokens: dict[str, Any] = {}
        self.pair: list[Any] = []
        self.asking: dict[str, list[Any]] = {}

    def handle(self, message: JsonObject) -> None:
        method, params = message.get("method"), message.get("params") or {}
        if method is None:
            self.answered(message)
        elif "id" in message:
            self.request(message["id"], method, params)

    def request(self, request_id: Any, method: str, params: JsonObject) -> None:
        meta = params.get("_meta") or {}
        if not self.is_legacy and f"{PREFIX}protocolVersion" in meta:
            self.is_modern = True
        takes_tasks = EXTENSION in (meta.get(f"{PREFIX}clientCapabilities") or {}).get("extensions", {})
        match method:
            case "initialize" if self.knows_initialize:
                requests = {"tools": {"call": {}}}
                capabilities = {"tools": {}, "tasks": {"list": {}, "cancel": {}, "requests": requests}}
                said = {"protocolVersion": LEGACY, "capabilities": capabilities, "serverInfo": INFO}
                wire.answer(request_id, said)
            case "server/discover" if self.is_modern:
                capabilities = {"tools": {}, "extensions": {EXTENSION: {}}}
                self.answer(request_id, {"supportedVersions": [MODERN], "capabilities": capabilities})
            case "ping":
                wire.answer(request_id, {})
            case "tools/list":
                self.answer(request_id, {"tools": PLAIN_TOOLS, "ttlMs": 0} if self.is_modern else {"tools": TOOLS})
            case "tools/call":
                self.call(request_id, params, as_task=takes_tasks if self.is_modern else "task" in params)
            case "tasks/list" if not self.is_modern:
                self.answer(request_id, {"tasks": list(self.tasks.values())})
            case "tasks/get" | "tasks/cancel" | "tasks/result" | "tasks/update":
                if self.is_modern and not takes_tasks:
                    self.refuse_without_tasks(request_id)
                elif params.get("taskId") in self.tasks:
                    self.of_task(request_id, method, params)
                else:
                    wire.fail(request_id, wire.INVALID_PARAMS, "Failed to retrieve task: Task not found")
            case _:
                wire.fail(request_id, wire.METHOD_NOT_FOUND, "Method not found", method)

    def answer(self, request_id: Any, result: JsonObject, result_type: str = "complete") -> None:
        wire.answer(request_id, {"resultType": result_type, **result} if self.is_modern else result)

    def refuse_without_tasks(self, request_id: Any) -> None:
        """A client of 2026-07-28 that takes no tasks is told so."""
        needed = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        wire.fail(request_id, MISSING_CAPABILITY, "Missing required client capability", needed)

    # Calls

    def call(self, request_id: Any, params: JsonObject, *, as_task: bool) -> None:
        name, given = params["name"], params.get("arguments") or {}
        if name == "finish":
            self.finish(request_id, given)
        elif not as_task or name == "plain":
            if name == "only" and self.is_modern:
                self.refuse_without_tasks(request_id)
            elif name == "only":
                wire.fail(request_id, wire.METHOD_NOT_FOUND, "only is for tasks")
            elif given.get("way") == "ask":
                self.ask_for([request_id])
            elif given.get("way") == "pair":
                self.pair.append(request_id)
                if len(self.pair) == len("ab"):
                    self.ask_for(self.pair)
            else:
                self.answer(request_id, _result(f"did {given.get('text')}"))
        else:
            self.begin(request_id, name, given, params)

    def begin(self, request_id: Any, name: str, given: JsonObject, params: JsonObject) -> None:
        wish = params.get("task") or {}
        way, number = given.get("way", ""), len(self.tasks) + 1
        ids = {"huge_id": "x" * 1_000_000, "control_id": "a\n\x1b[31mb", "no_id": "", "same_id": f"{self.prefix}-1"}
        task = ids.get(way, f"{self.prefix}-{number}")
        ttl, poll = ("ttlMs", "pollIntervalMs") if self.is_modern else ("ttl", "pollInterval")
        state = "input_required" if name == "asks" else "working"
        times = {"createdAt": MOMENT, "lastUpdatedAt": MOMENT, ttl: wish.get("ttl", 60_000), poll: 10}
        self.tasks[task] = {"taskId": task, "status": state, "statusMessage": UNDER_WAY, **times}
        self.ways[task] = way
        self.tokens[task] = (params.get("_meta") or {}).get("progressToken")
        self.results[task] = _result(f"did {given.get('text')}")
        meta = {"_meta": {f"{PREFIX}model-immediate-response": UNDER_WAY}}
        if self.is_modern:
            self.answer(request_id, self.tasks[task], "task")
        else:
            wire.answer(request_id, {"task": self.tasks[task], **meta})

    def ask_for(self, request_ids: list[Any]) -> None:
        ask_id = f"ask for {request_ids}"
        self.asking[ask_id] = request_ids
        wire.send({"jsonrpc": "2.0", "id": ask_id, "method": "elicitation/create", "params": QUESTION})

    def finish(self, request_id: Any, given: JsonObject) -> None:
        """End a task in some way, or tell how far it is, or end this server."""
        if given.get("how") == "crash":
            sys.exit(3)
        if given.get("how") == "progress":
            token = self.tokens[given["task"]]
            wire.notify(
                "notifications/progress", {"progressToken": token, "progress": 1, "total": 2, "message": "Half"}
            )
        else:
            self.end(given["task"], given.get("how", "completed"))
        self.answer(request_id, _result("finished"))

    def end(self, task: str, status: str) -> None:
        """A task has ended: whoever waits for it is answered, and its client told."""
        self.tasks[task] |= {"status": status}
        if not self.is_modern:
            wire.notify("notifications/tasks/status", self.tasks[task])
        for request_id in self.waiting.pop(task, []):
            self.give(request_id, task)

    # Tasks

    def of_task(self, request_id: Any, method: str, params: JsonObject) -> None:
        task = params["taskId"]
        self.go_on(task, method)
        state = self.tasks[task]
        match method:
            case "tasks/get":
                more: JsonObject = {}
                if self.is_modern and state["status"] == "completed":
                    more = {"result": self.results[task]}
                elif self.is_modern and state["status"] == "input_required":
                    more = {"inputRequests": {"name": {"method": "elicitation/create", "params": QUESTION}}}
                named = {"taskId": "another"} if self.ways[task] == "another" else {}
                self.answer(request_id, {**state, **more, **named})
            case "tasks/cancel" if state["status"] in ENDED and not self.is_modern:
                wire.fail(request_id, wire.INVALID_PARAMS, f"it is {state['status']} already")
            case "tasks/cancel":
                self.end(task, "cancelled")
                self.answer(request_id, {} if self.is_modern else self.tasks[task])
            case "tasks/update" if self.is_modern:
                self.told(task, params["inputResponses"]["name"])
                self.answer(request_id, {})
            case "tasks/result" if not self.is_modern:
                if state["status"] in ENDED:
                    self.give(request_id, task)
                    return
                self.waiting.setdefault(task, []).append(request_id)
                if state["status"] == "input_required":
                    ask_id = f"ask {task}"
                    self.questions[ask_id] = task
                    related = {**QUESTION, "_meta": {RELATED: {"taskId": task}}}
                    wire.send({"jsonrpc": "2.0", "id": ask_id, "method": "elicitation/create", "params": related})
            case _:
                wire.fail(request_id, wire.METHOD_NOT_FOUND, "Method not found", method)

    def go_on(self, task: str, method: str) -> None:
        self.looks[task] = self.looks.get(task, 0) + 1
        is_late = self.looks[task] > 1 or method == "tasks/result"
        if self.ways[task] == "soon" and is_late and self.tasks[task]["status"] == "working":
            self.end(task, "completed")

    def answered(self, message: JsonObject) -> None:
        content = (message.get("result") or {}).get("content") or {}
        for request_id in self.asking.pop(str(message.get("id")), []):
            self.answer(request_id, _result(f"did it for {content.get('name')}"))
        task = self.questions.pop(str(message.get("id")), "")
        if task:
            self.told(task, message.get("result") or {})

    def told(self, task: str, answer: JsonObject) -> None:
        self.results[task] = _result(f"did it for {(answer.get('content') or {}).get('name')}")
        self.end(task, "completed")

    def give(self, request_id: Any, task: str) -> None:
        if self.tasks[task]["status"] == "cancelled":
            wire.fail(request_id, -32000, "it was cancelled")
            return
        wire.answer(request_id, {**self.results[task], "_meta": {RELATED: {"taskId": task}}})


def _result(text: str) -> JsonObject:
    return {"content": [{"type": "text", "text": text}]}


def main() -> None:
    server = Server(is_legacy="--legacy" in sys.argv, knows_initialize="--modern" not in sys.argv)
    wire.serve(server.handle)


if __name__ == "__main__":
    main()
