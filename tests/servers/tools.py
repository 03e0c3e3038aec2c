"""The tools of `echo.py`, `modern.py` and `hostile.py`, the same ones in both protocol eras."""

import os
import resource
import threading
from typing import Final

import wire
from calls import EXTRAS, PENDING, PNG, TOOLS, Call, tool
from wire import JsonObject

JUNK: Final = b"this is not a JSON-RPC message, only junk\n"

STRING: Final = {"type": "string"}
NUMBER: Final = {"type": "number"}
INTEGER: Final = {"type": "integer", "minimum": 0}
SUM: Final = {"type": "object", "properties": {"sum": NUMBER}, "required": ["sum"]}


@tool("Give the text back.", {"text": STRING})
def echo(call: Call) -> None:
    call.answer_encoded(b'{"content":[{"type":"text","text":%b}]}' % wire.dumps(call.arguments["text"]))


@tool("Add.", {"a": NUMBER, "b": NUMBER}, outputSchema=SUM)
def add(call: Call) -> None:
    total = call.arguments["a"] + call.arguments["b"]
    call.say(str(total), structuredContent={"sum": total})


@tool("Answer after some seconds, unless cancelled.", {"seconds": NUMBER})
def slow(call: Call) -> None:
    cancelled = PENDING[call.id] = threading.Event()

    def sleep() -> None:
        if not cancelled.wait(call.arguments["seconds"]) and PENDING.pop(call.id, None) is not None:
            call.say(f"slept {call.arguments['seconds']} s")

    threading.Thread(target=sleep, daemon=True).start()


@tool("Report progress n times, if the request has a token, then answer.", {"n": INTEGER})
def progress(call: Call) -> None:
    total = call.arguments["n"]
    token = call.meta.get("progressToken")
    for step in range(1, total + 1) if token is not None else ():
        params = {"progressToken": token, "progress": step, "total": total, "message": f"step {step}"}
        wire.notify("notifications/progress", params)
    call.say(f"{total} steps")


@tool("Log a line, then answer.", {"text": STRING}, {"level": STRING})
def log(call: Call) -> None:
    call.log({"level": call.arguments.get("level", "info"), "logger": "echo", "data": call.arguments["text"]})
    call.say("logged")


@tool("Answer with so many bytes of text.", {"bytes": INTEGER})
def big(call: Call) -> None:
    call.answer_encoded(b'{"content":[{"type":"text","text":"%b"}]}' % (b"x" * call.arguments["bytes"]))


@tool("Tell this server's process id.")
def pid(call: Call) -> None:
    call.say(str(os.getpid()), structuredContent={"pid": os.getpid(), "ppid": os.getppid()})


@tool("Tell this server's environment.")
def env(call: Call) -> None:
    call.say("\n".join(sorted(os.environ)), structuredContent=dict(os.environ))


@tool("Die without an answer, by exit code or signal.", {}, {"code": INTEGER, "signal": INTEGER, "delay_s": NUMBER})
def crash(call: Call) -> None:
    def die() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number := call.arguments.get("signal"):
            os.kill(os.getpid(), number)
        else:
            os._exit(call.arguments.get("code", 1))

    if delay_s := call.arguments.get("delay_s"):
        threading.Timer(delay_s, die).start()
    else:
        die()


@tool("Answer with a JSON-RPC error.", {"code": {"type": "integer"}, "message": STRING}, {"data": {}})
def fail(call: Call) -> None:
    wire.fail(call.id, call.arguments["code"], call.arguments["message"], call.arguments.get("data"))


@tool("Answer with a result that says it is an error.", optional={"text": STRING})
def iserror(call: Call) -> None:
    call.say(call.arguments.get("text", "it went wrong"), isError=True)


@tool("Answer with every kind of block, and with nulls and unknown fields everywhere.")
def blocks(call: Call) -> None:
    meta = {"example.com/block": {"null": None}}
    future: JsonObject = {"_meta": meta, "x-future": {"null": None, "list": [None, 1.0]}}
    notes = {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-02T03:04:05Z", "x-future": None}
    text = {"uri": "file:///notes.txt", "mimeType": "text/plain", "text": "line one\nline two\u2028", **future}
    blob = {"uri": "example://blob", "mimeType": "application/octet-stream", "blob": "AAECAw==", **future}
    link = {"uri": "https://example.com/a", "name": "a", "title": "A", "size": 3, "icons": EXTRAS["icons"]}
    content: list[JsonObject] = [
        {"type": "text", "text": 'tab\t, quote ", backslash \\, é, \U0001f600', "annotations": notes},
        {"type": "image", "data": PNG, "mimeType": "image/png", "annotations": notes},
        {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
        {"type": "resource", "resource": text},
        {"type": "resource", "resource": blob, "annotations": notes},
        {"type": "resource_link", **link},
    ]
    structured = {"null": None, "list": [{"null": None}, []], "float": 1.0, "big": 12345678901234567890, "": "no key"}
    marked = [block | future for block in content]
    call.answer({"content": marked, "structuredContent": structured, "isError": False} | future)


@tool("Add a tool to the list and say so.")
def change(call: Call) -> None:
    name = f"added_{len(TOOLS)}"
    definition, _ = TOOLS["echo"]
    TOOLS[name] = (definition | {"name": name}, echo)
    call.announce()
    call.say(name)


@tool("Never answer.")
def hang(call: Call) -> None:
    PENDING[call.id] = threading.Event()


@tool("Write n lines of junk, then answer.", {"n": INTEGER})
def flood(call: Call) -> None:
    n = call.arguments["n"]
    for start in range(0, n, 1000):
        wire.write(JUNK * min(1000, n - start))
    call.say(f"{n} lines of junk")
