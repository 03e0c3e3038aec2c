"""What servers and clients have for each other, as a client tries it: the rows of the table in `docs/clients.md`.

Each gives what it saw, so that what is seen through us can be compared with what is seen without.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from support.clients.era_client import Era, EraClient
from support.clients.raw_client import JsonObject, RpcError
from support.waiting import eventually

INSTRUCTIONS: Final = "This server has one of everything"

WATCHED: Final = "test://watched-resource"

ASKING: Final = re.compile(r"^[\w-]+ asks: (?:open [\w.:-]+\? )?")
"""How a question begins that names its server, and the host of a page."""

OUR_META: Final = "quarterdeck/"


@dataclass(frozen=True, slots=True)
class Feature:
    """A row; `see` tries it at one of the pretend servers."""

    name: str
    see: Callable[[EraClient], object]
    server: str = "conformance"


def tried(see: Callable[[Any], object], client: Any) -> object:
    """What is seen, or what kept it from being seen."""
    try:
        return see(client)
    except (RpcError, AssertionError, KeyError, TimeoutError) as error:
        return error


def _tools(client: EraClient) -> object:
    return client.pages("tools/list", "tools")


def _calls(client: EraClient) -> object:
    names = ("test_also_links", "test_multiple_content_types", "test_embedded_resource", "json_schema_2020_12_tool")
    plain = [client.ask("tools/call", name=name, arguments={}) for name in names]
    return [*plain, client.ask("tools/call", name="test_also_add", arguments={"a": 1, "b": 2})]


def _errors(client: EraClient) -> object:
    return client.ask("tools/call", name="test_error_handling", arguments={})


def _resources(client: EraClient) -> object:
    return [client.pages("resources/list", "resources"), client.pages("resources/templates/list", "resourceTemplates")]


def _reading(client: EraClient) -> object:
    uris = ("test://static-text", "test://static-binary", "test://template/7/data")
    return [client.ask("resources/read", uri=uri) for uri in uris]


def _missing(client: EraClient) -> object:
    return client.error("resources/read", uri="test://template/nowhere")


def _updates(client: EraClient) -> object:
    client.listen(WATCHED)
    client.ask("tools/call", name="test_also_trigger_update", arguments={})
    client.notifications.insert(0, client.notification("notifications/resources/updated"))
    told = client.heard("notifications/resources/updated")
    client.listen_no_more(WATCHED)
    return told


def _prompts(client: EraClient) -> object:
    return client.pages("prompts/list", "prompts")


def _prompt(client: EraClient) -> object:
    return [
        client.ask("prompts/get", name="test_simple_prompt"),
        client.ask("prompts/get", name="test_prompt_with_arguments", arguments={"arg1": "a", "arg2": "b"}),
        client.ask("prompts/get", name="test_prompt_with_embedded_resource", arguments={"resourceUri": "test://x"}),
        client.ask("prompts/get", name="test_prompt_with_image"),
    ]


def _completion(client: EraClient) -> object:
    argument = {"name": "arg1", "value": "par"}
    prompt = {"type": "ref/prompt", "name": "test_prompt_with_arguments"}
    template = {"type": "ref/resource", "uri": "test://template/{id}/data"}
    context = {"arguments": {"arg2": "there"}}
    return [
        client.ask("completion/complete", ref=prompt, argument=argument, context=context),
        client.ask("completion/complete", ref=template, argument={"name": "id", "value": "7"}),
    ]


def _log(client: EraClient) -> object:
    client.call_with_log("test_tool_with_logging", "error")
    unwanted = client.heard("notifications/message")
    client.call_with_log("test_tool_with_logging", "info")
    return unwanted, [
        {**line, "logger": "conformance" in line["logger"]} for line in client.heard("notifications/message")
    ]


def _progress(client: EraClient) -> object:
    client.ask("tools/call", name="test_tool_with_progress", arguments={}, _meta={"progressToken": "mine"})
    return client.heard("notifications/progress")


def _cancelling(client: EraClient) -> object:
    def count() -> int:
        return int(client.ask("tools/call", name="test_also_was_cancelled", arguments={})["content"][0]["text"])

    before = count()
    client.cancel(client.start_call("test_also_wait"))
    eventually(lambda: count() == before + 1, client.deadline_s, "the cancellation")
    return client.strays


def _changes(kind: str, list_method: str, key: str, trigger: str) -> Callable[[EraClient], object]:
    def see(client: EraClient) -> object:
        told = f"notifications/{key}/list_changed"
        # With the first call a server of both eras starts again in its client's, which may be told as a change.
        client.ask("tools/call", name="test_simple_text", arguments={})
        client.pages(list_method, key)
        client.listen()
        seen = []
        for _ in range(2):  # there is one more, and then there is not
            client.heard(told)
            client.ask("tools/call", name=trigger, arguments={})
            client.notification(told)
            seen.append([item["name"] for item in client.pages(list_method, key)])
        client.listen_no_more()
        return kind, seen

    return see


def _instructions(client: EraClient) -> object:
    return INSTRUCTIONS in client.greeting.get("instructions", "")


def _asked(*tools: str) -> Callable[[EraClient], object]:
    def see(client: EraClient) -> object:
        client.questions.clear()
        results = [client.ask("tools/call", name=tool, arguments={}) for tool in tools]
        return results, questions_of(client)

    return see


def _asked_by_prompt(client: EraClient) -> object:
    client.questions.clear()
    return client.ask("prompts/get", name="test_input_required_result_prompt"), questions_of(client)


def _tasks(client: EraClient) -> object:
    said = client.greeting["capabilities"]
    executions = {tool["name"]: tool.get("execution") for tool in client.pages("tools/list", "tools")}
    made = [_whole(client, "tools/call", **_work(client, text=text)) for text in "ab"]
    first, second = (_task_in(each) for each in made)
    states = [client.ask("tasks/get", taskId=first)]
    listed = client.pages("tasks/list", "tasks") if client.era is Era.OLD else []
    client.ask("tools/call", name="finish", arguments={"task": first})
    states += [
        client.ask("tasks/cancel", taskId=second),
        *(client.ask("tasks/get", taskId=each) for each in (first, second)),
    ]
    ends: list[object] = []
    if client.era is Era.OLD:
        client.notifications.insert(0, client.notification("notifications/tasks/status"))
        ends = [_whole(client, "tasks/result", taskId=first), client.error("tasks/cancel", taskId=second)["code"]]
    told = sorted(client.heard("notifications/tasks/status"), key=json.dumps)[:1]
    missing = client.error("tasks/get", taskId="nobody's")["code"]
    return said.get("tasks"), said.get("extensions"), executions, made, states, listed, told, ends, missing


def _task_that_asks(client: EraClient) -> object:
    client.questions.clear()
    task = _task_in(_whole(client, "tools/call", **_work(client, "asks")))
    states = [client.ask("tasks/get", taskId=task)]
    if client.era is Era.OLD:
        return states, _whole(client, "tasks/result", taskId=task), questions_of(client)
    for key, question in states[0].pop("inputRequests").items():
        answer = client.answer_to(question)
        states.append(client.ask("tasks/update", taskId=task, inputResponses={key: answer}))
    return states, client.ask("tasks/get", taskId=task), questions_of(client)


def _work(client: EraClient, tool: str = "work", **arguments: str) -> JsonObject:
    """A call that is to be a task, in the words of the client's era."""
    return {"name": tool, "arguments": arguments, **({"task": {"ttl": 60_000}} if client.era is Era.OLD else {})}


def _task_in(result: JsonObject) -> str:
    return str(result["task"]["taskId"] if "task" in result else result["taskId"])


def _whole(client: EraClient, method: str, **params: Any) -> JsonObject:
    result: JsonObject = client.reply(client.send(method, params), answering=client.answer_to)["result"]
    if meta := {key: value for key, value in result.pop("_meta", {}).items() if not key.endswith("/serverInfo")}:
        result["_meta"] = meta
    return result


def questions_of(client: EraClient) -> list[tuple[str, JsonObject]]:
    """What was asked: without who asked, which we add, and in an order, for those of a round have none."""
    return sorted(
        ((method, _plain(params)) for method, params in client.questions), key=partial(json.dumps, sort_keys=True)
    )


def _plain(params: JsonObject) -> JsonObject:
    plain: dict[str, Any] = {key: value for key, value in params.items() if key not in ("_meta", "elicitationId")}
    if meta := {key: value for key, value in (params.get("_meta") or {}).items() if not key.startswith(OUR_META)}:
        plain["_meta"] = meta
    if "message" in plain:
        plain["message"] = ASKING.sub("", plain["message"])
    return plain


FEATURES: Final = (
    Feature("tools: titles, icons, annotations, schemas, `_meta`", _tools),
    Feature("results: every block, `structuredContent`, `_meta`", _calls),
    Feature("errors that a tool answers with", _errors),
    Feature("resources and templates", _resources),
    Feature("reading a resource", _reading),
    Feature("a resource that there is not", _missing),
    Feature("subscribing to a resource", _updates),
    Feature("prompts", _prompts),
    Feature("a prompt's messages", _prompt),
    Feature("completion, with context", _completion),
    Feature("log lines by level", _log),
    Feature("progress", _progress),
    Feature("cancelling a call", _cancelling),
    Feature("changed tools", _changes("tools", "tools/list", "tools", "test_trigger_tool_change")),
    Feature("changed prompts", _changes("prompts", "prompts/list", "prompts", "test_trigger_prompt_change")),
    Feature(
        "changed resources", _changes("resources", "resources/list", "resources", "test_also_trigger_resource_change")
    ),
    Feature("instructions", _instructions),
    Feature("elicitation: forms", _asked("test_elicitation", "test_elicitation_sep1330_enums")),
    Feature("elicitation: an address to open", _asked("test_also_url")),
    Feature("sampling", _asked("test_sampling")),
    Feature("roots", _asked("test_input_required_result_list_roots")),
    Feature(
        "several questions, and rounds of them",
        _asked("test_input_required_result_multiple_inputs", "test_input_required_result_multi_round"),
    ),
    Feature("a prompt that asks", _asked_by_prompt),
    Feature("tasks: begun, watched, listed, cancelled, their results", _tasks, "tasking"),
    Feature("a task that asks", _task_that_asks, "tasking"),
)
