"""What `conformance.py` offers, under the names that the suite's scenarios use; `test_also_…` names are our own.

Definitions and contents are plain JSON.  What a tool asks is in `QUESTIONS`, what else it does in `conformance.py`.
"""

import json
from typing import Any, Final

from asking import JsonObject, Round, form, roots, sample

PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV: Final = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="

ICON: Final = {"src": "data:image/png;base64," + PNG, "mimeType": "image/png", "sizes": ["1x1"]}

INSTRUCTIONS: Final = "This server has one of everything: call test_simple_text first."

WATCHED: Final = "test://watched-resource"
BINARY: Final = "test://static-binary"


def text(words: str) -> JsonObject:
    return {"type": "text", "text": words}


def _embedded(uri: str, mime_type: str, words: str) -> JsonObject:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": words}}


IMAGE: Final = {"type": "image", "data": PNG, "mimeType": "image/png"}
AUDIO: Final = {"type": "audio", "data": WAV, "mimeType": "audio/wav"}
MIXED: Final = _embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
LINK: Final = {"type": "resource_link", "uri": BINARY, "name": "static-binary", "mimeType": "image/png", "size": 70}

BLOCKS: Final[dict[str, list[JsonObject]]] = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [IMAGE],
    "test_audio_content": [AUDIO],
    "test_embedded_resource": [
        _embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [text("Multiple content types test:"), IMAGE, MIXED],
    "test_also_links": [text("look there") | {"annotations": {"audience": ["user"], "priority": 0.5}}, LINK, AUDIO],
}
"""Tools that always answer the same."""

NAME: Final = {"name": {"type": "string"}}

ENUMS: Final[JsonObject] = {
    "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
    "titledSingle": {
        "type": "string",
        "oneOf": [{"const": "value1", "title": "First Option"}, {"const": "value2", "title": "Second Option"}],
    },
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
    "titledMulti": {
        "type": "array",
        "items": {"anyOf": [{"const": "value1", "title": "First"}, {"const": "value2", "title": "Second"}]},
    },
}
"""A field of each kind of choice."""

DEFAULTS: Final[JsonObject] = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}

_ASK_NAME: Final = form("What is your name?", NAME, ["name"])
_CONFIRM: Final = form("Please confirm", {"ok": {"type": "boolean"}}, ["ok"])

QUESTIONS: Final[dict[str, list[Round]]] = {
    "test_sampling": [{"model": sample("Say something")}],
    "test_elicitation": [{"person": form("Say something", {"response": {"type": "string"}}, ["response"])}],
    "test_elicitation_sep1034_defaults": [{"person": form("Review the fields", DEFAULTS)}],
    "test_elicitation_sep1330_enums": [{"person": form("Choose", ENUMS)}],
    "test_also_url": [
        {
            "person": {
                "method": "elicitation/create",
                "params": {"mode": "url", "message": "Sign in", "url": "https://example.com/in", "elicitationId": "e1"},
            }
        }
    ],
    "test_streaming_elicitation": [{"user_name": _ASK_NAME}],
    "test_input_required_result_elicitation": [{"user_name": _ASK_NAME}],
    "test_input_required_result_sampling": [{"capital_question": sample("What is the capital of France?")}],
    "test_input_required_result_list_roots": [{"client_roots": roots()}],
    "test_input_required_result_request_state": [{"confirm": _CONFIRM}],
    "test_input_required_result_tampered_state": [{"confirm": _CONFIRM}],
    "test_input_required_result_multiple_inputs": [
        {"user_name": _ASK_NAME, "greeting": sample("Generate a greeting", 50), "client_roots": roots()}
    ],
    "test_input_required_result_multi_round": [
        {"step1": form("Step 1: What is your name?", NAME, ["name"])},
        {"step2": form("Step 2: What is your favorite color?", {"color": {"type": "string"}}, ["color"])},
    ],
}
"""What a tool asks, round by round, before it answers with what it was told."""

WITH_STATE: Final = frozenset(
    {
        "test_input_required_result_request_state",
        "test_input_required_result_tampered_state",
        "test_input_required_result_multiple_inputs",
        "test_input_required_result_multi_round",
    }
)
"""Tools that have a modern client carry a state."""

PROMPT_QUESTIONS: Final[list[Round]] = [
    {"user_context": form("What context should the prompt use?", {"context": {"type": "string"}}, ["context"])}
]
"""What `test_input_required_result_prompt` asks."""

CAPABLE: Final[dict[str, JsonObject]] = {
    "elicitation": _ASK_NAME,
    "sampling": sample("Generate a greeting"),
    "roots": roots(),
}
"""What `test_input_required_result_capabilities` asks of a client that has said it can."""

EMPTY: Final = {"type": "object", "properties": {}}

SCHEMA_2020_12: Final = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

SUM: Final = {"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]}

_SPECIAL: Final[dict[str, JsonObject]] = {
    "json_schema_2020_12_tool": {"inputSchema": SCHEMA_2020_12},
    "test_header_echo": {
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string", "x-mcp-header": "Text"}}}
    },
    "test_also_add": {
        "title": "Add",
        "icons": [ICON],
        "annotations": {"title": "Sum", "readOnlyHint": True, "openWorldHint": False},
        "inputSchema": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
        "outputSchema": SUM,
        "_meta": {"example.com/kept": {"as": ["it", "is"]}},
    },
    "test_error_handling": {},
    "test_also_protocol_error": {},
    "test_tool_with_logging": {},
    "test_logging_tool": {},
    "test_tool_with_progress": {},
    "test_missing_capability": {},
    "test_input_required_result_capabilities": {},
    "test_trigger_tool_change": {},
    "test_trigger_prompt_change": {},
    "test_also_trigger_resource_change": {},
    "test_also_trigger_update": {},
    "test_also_wait": {},
    "test_also_was_cancelled": {},
}


def tools() -> list[JsonObject]:
    names = [*BLOCKS, *QUESTIONS, *_SPECIAL]
    return [{"name": n, "description": _words(n), "inputSchema": EMPTY} | _SPECIAL.get(n, {}) for n in names]


RESOURCES: Final[list[JsonObject]] = [
    {
        "uri": "test://static-text",
        "name": "static-text",
        "title": "Static text",
        "description": "Text that stays",
        "mimeType": "text/plain",
        "icons": [ICON],
        "annotations": {"audience": ["assistant"], "priority": 0.3},
        "size": 48,
    },
    {"uri": BINARY, "name": "static-binary", "description": "A picture that stays", "mimeType": "image/png"},
    {"uri": WATCHED, "name": "watched-resource", "description": "Text that can be watched", "mimeType": "text/plain"},
]

TEMPLATES: Final[list[JsonObject]] = [
    {
        "uriTemplate": "test://template/{id}/data",
        "name": "template",
        "title": "By id",
        "description": "What there is for an id",
        "mimeType": "application/json",
        "_meta": {"example.com/kept": 1},
    }
]


def contents(uri: str) -> list[JsonObject] | None:
    """What is read there; None for what there is not."""
    match uri.split("/"):
        case ["test:", "", "static-text"]:
            return [{"uri": uri, "mimeType": "text/plain", "text": "This is the content of the static text resource."}]
        case ["test:", "", "static-binary"]:
            return [{"uri": uri, "mimeType": "image/png", "blob": PNG}]
        case ["test:", "", "watched-resource"]:
            return [{"uri": uri, "mimeType": "text/plain", "text": "Watched resource content"}]
        case ["test:", "", "template", found, "data"]:
            told = {"id": found, "templateTest": True, "data": f"Data for ID: {found}"}
            return [{"uri": uri, "mimeType": "application/json", "text": json.dumps(told)}]
    return None


PROMPTS: Final[list[JsonObject]] = [
    {"name": "test_simple_prompt", "title": "Simple", "description": "A prompt without arguments", "icons": [ICON]},
    {
        "name": "test_prompt_with_arguments",
        "description": "A prompt with arguments",
        "arguments": [
            {"name": "arg1", "description": "the first", "required": True},
            {"name": "arg2", "title": "Second", "description": "the second", "required": True},
        ],
    },
    {
        "name": "test_prompt_with_embedded_resource",
        "description": "A prompt with a resource in it",
        "arguments": [{"name": "resourceUri", "description": "which", "required": True}],
    },
    {"name": "test_prompt_with_image", "description": "A prompt with a picture"},
    {"name": "test_input_required_result_prompt", "description": "A prompt that asks first"},
]


def messages(name: str, arguments: dict[str, str]) -> list[JsonObject] | None:
    """What a prompt says; None for one that there is not."""
    found: dict[str, list[JsonObject]] = {
        "test_simple_prompt": [text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments": [
            text(f"Prompt with arguments: arg1='{arguments.get('arg1')}', arg2='{arguments.get('arg2')}'")
        ],
        "test_prompt_with_embedded_resource": [
            _embedded(arguments.get("resourceUri", ""), "text/plain", "Embedded resource content for testing."),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image": [IMAGE, text("Please analyze the image above.")],
    }
    blocks: list[Any] | None = found.get(name)
    return None if blocks is None else [{"role": "user", "content": block} for block in blocks]


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize()
