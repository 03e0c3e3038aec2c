"""The JSON Schema (2020-12) of a configuration file, for editors, made of the models that read it.

It is a little stricter than reading: a number may be a number, or a text with a variable, but not digits in a text.
Pure.
"""

import re
from collections.abc import Mapping
from typing import Final

from quarterdeck.config.groups import Group
from quarterdeck.config.native_tools import NativeSettings
from quarterdeck.config.overrides import ServerOverrides
from quarterdeck_protocol.configs import (
    SseServerConfig,
    StartMode,
    StdioServerConfig,
    StreamableHttpServerConfig,
    TrustMode,
)
from quarterdeck_protocol.policy import FrozenModel

from .document import (
    AUDIT_KEY,
    BUDGET_KEY,
    GROUPS_KEY,
    HTTP_KEY,
    NATIVE_KEY,
    OUR_KEYS,
    REGISTRY_KEY,
    SERVER_KEYS,
    START_KEY,
    TELEMETRY_KEY,
    TRUST_KEY,
)
from .own_keys import MAX_TOKENS, AuditKey, HttpKey, RegistryKey, TelemetryKey
from .project import ALLOW_KEY
from .row import FOREIGN_KEYS, refused_keys

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE: Final = {"type": "string", "pattern": r"\$\{.+\}", "description": "A text with a variable in it."}
_SCALAR: Final = {"type": ["string", "number", "boolean", "null"]}

_NULLABLE: Final = frozenset({"SandboxPolicy", "Limits", "NativeSettings", "FetchPolicy", "Group"})
"""Models in which null stands for an absent key, or for no limit."""

_KINDS: Final[Mapping[str, tuple[type[FrozenModel], str, tuple[str, ...]]]] = {
    "stdio": (StdioServerConfig, "command", ("stdio",)),
    "sse": (SseServerConfig, "url", ("sse",)),
    "http": (StreamableHttpServerConfig, "url", ("http", "streamable-http", "streamable_http", "streamableHttp")),
}

_ATTRIBUTE: Final = re.compile(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)


def config_schema() -> dict[str, object]:
    """Return the schema of a file."""
    definitions: dict[str, object] = {"reference": _REFERENCE}
    rows = []
    for name in _KINDS:
        definitions[name] = _row(name, definitions)
        rows.append({"$ref": f"#/$defs/{name}"})
    definitions["switchedOff"] = {
        "description": "A row that is switched off may say anything.",
        "type": "object",
        "anyOf": [
            {"properties": {"disabled": {"const": True}}, "required": ["disabled"]},
            {"properties": {"enabled": {"const": False}}, "required": ["enabled"]},
        ],
    }
    definitions["server"] = {"anyOf": [*rows, {"$ref": "#/$defs/switchedOff"}]}
    definitions["servers"] = {
        "anyOf": [
            {"type": "object", "additionalProperties": {"$ref": "#/$defs/server"}},
            {"type": "array", "items": {"$ref": "#/$defs/listed"}},
        ]
    }
    definitions["listed"] = {
        "description": "A server in a list names itself.",
        "allOf": [{"$ref": "#/$defs/server"}],
        "anyOf": [
            {"required": ["id"], "properties": {"id": {"type": "string"}}},
            {"required": ["name"], "properties": {"name": {"type": "string"}}},
            {"$ref": "#/$defs/switchedOff"},
        ],
    }
    definitions[NativeSettings.__name__] = _translate(NativeSettings, definitions)
    definitions[Group.__name__] = _translate(Group, definitions)
    native = {"$ref": f"#/$defs/{NativeSettings.__name__}"}
    return {
        "$schema": DIALECT,
        "title": "Quarterdeck configuration",
        "type": "object",
        "properties": {
            "$schema": {"type": "string"},
            **{key: {"$ref": "#/$defs/servers"} for key in SERVER_KEYS},
            NATIVE_KEY: {"anyOf": [native, {"type": "null"}], "description": "What native tools may reach and use."},
            TRUST_KEY: {
                "enum": [*map(str, TrustMode), None],
                "description": "What servers of this file get that do not say it themselves.",
            },
            START_KEY: {
                "enum": [*map(str, StartMode), None],
                "description": "When servers of this file start that do not say it themselves.",
            },
            ALLOW_KEY: {
                "type": ["array", "null"],
                "items": {"type": "string", "pattern": "^[^=]+$"},
                "description": "Variables that projects' files may use; only in a file of your own.",
            },
            HTTP_KEY: {
                "anyOf": [{"type": ["boolean", "string", "null"]}, _translate(HttpKey, definitions)],
                "description": "Where the daemon listens, true for the usual address; only in your own file.",
            },
            TELEMETRY_KEY: {
                "anyOf": [{"type": "null"}, _translate(TelemetryKey, definitions)],
                "description": "What is told to Prometheus and OpenTelemetry; only in your own file.",
            },
            AUDIT_KEY: {
                "anyOf": [_translate(AuditKey, definitions), {"type": "null"}],
                "description": "How long calls are kept in the ledger, and where records go; only in your own file.",
            },
            REGISTRY_KEY: {
                "anyOf": [{"type": ["string", "null"]}, _translate(RegistryKey, definitions)],
                "description": "Where `quarterdeck search` looks for servers: a URL, or a file; only in your own file.",
            },
            BUDGET_KEY: {
                "type": ["integer", "null"],
                "minimum": 1,
                "maximum": MAX_TOKENS,
                "description": "Above how many tokens a tool's result is cut; only in a file of your own.",
            },
            GROUPS_KEY: {
                "type": ["object", "null"],
                "propertyNames": {"pattern": "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"},
                "additionalProperties": {"$ref": f"#/$defs/{Group.__name__}"},
                "description": "Named parts of what is offered; only in a file of your own.",
            },
        },
        "anyOf": [{"required": [key]} for key in OUR_KEYS],
        "$defs": definitions,
    }


def _row(name: str, definitions: dict[str, object]) -> dict[str, object]:
    model, needed, spellings = _KINDS[name]
    schema = _translate(model, definitions)
    fields: dict[str, object] = {
        key: value if key == needed else _or_null(value) for key, value in _properties(schema).items()
    }
    shown = _properties(_translate(ServerOverrides, definitions))
    fields |= {key: _or_null(value) for key, value in shown.items()}
    if "env" in fields:
        fields["env"] = {"type": ["object", "null"], "additionalProperties": _SCALAR}
        fields["envFile"] = {"type": ["string", "null"], "description": "A file of variables, below `env`."}
    fields |= {key: {"enum": [*spellings, None]} for key in ("type", "transport")}
    fields["kind"] = {"enum": [str(model.model_fields["kind"].default), None]}
    fields["id"] = {"type": ["string", "null"]}
    fields |= {key: {"type": ["boolean", "null"]} for key in ("disabled", "enabled")}
    fields["registry"] = {"type": ["string", "null"], "description": "What the MCP registry calls the server."}
    fields |= {key: {"description": "Another client's key: ignored."} for key in sorted(FOREIGN_KEYS)}
    fields |= dict.fromkeys(sorted(refused_keys(model)), False)
    row: dict[str, object] = {
        "description": schema.get("description", ""),
        "type": "object",
        "properties": fields,
        "required": [needed],
        # Other clients' keys are ignored; whether one is near to one of ours, only loading tells.
        "additionalProperties": True,
    }
    if name == "http":
        # A bare URL is the kind that tries both ways; this one has to be named.
        said = ({"required": [key], "properties": {key: {"type": "string"}}} for key in ("type", "transport", "kind"))
        row["anyOf"] = list(said)
    return row


def _translate(model: type[FrozenModel], definitions: dict[str, object]) -> dict[str, object]:
    """Return the schema of a model as a file writes it; inner models go to `definitions`."""
    schema = model.model_json_schema()
    for name, part in schema.pop("$defs", {}).items():
        definitions[name] = _loosen(part, is_nullable=name in _NULLABLE)
    return _loosen(schema, is_nullable=model.__name__ in _NULLABLE)


def _loosen(schema: Mapping[str, object], *, is_nullable: bool = False) -> dict[str, object]:
    """Return a schema that also takes variables, and null for an absent key; with the docstrings' descriptions."""
    members: dict[str, object] = {key: value for key, value in schema.items() if key not in {"title", "ge", "le"}}
    for key in ("items", "additionalProperties"):
        if isinstance(part := members.get(key), Mapping):
            members[key] = _loosen(part)
    if isinstance(parts := members.get("anyOf"), list):
        # Of a size pydantic says the bounds beside its two spellings, in words of its own.
        bounds = {"minimum": schema["ge"], "maximum": schema["le"]} if "ge" in schema and "le" in schema else {}
        members["anyOf"] = [_loosen({**part, **bounds} if part.get("type") == "integer" else part) for part in parts]
    if properties := _properties(schema):
        text, _, attributes = str(schema.get("description", "")).partition("\n\nAttributes:\n")
        told = {name: re.sub(r"\s+", " ", words) for name, words in _ATTRIBUTE.findall(attributes)}
        members["description"] = re.sub(r"\s+", " ", text)
        members["properties"] = {
            name: (_or_null(_loosen(part)) if is_nullable else _loosen(part))
            | ({"description": told[name]} if name in told else {})
            for name, part in properties.items()
        }
    is_choice = members.get("type") == "string" and ("enum" in members or "pattern" in members)
    if is_choice or members.get("type") in {"integer", "number"}:
        outside: dict[str, object] = {key: members.pop(key) for key in ("default", "description") if key in members}
        return {"anyOf": [members, {"$ref": "#/$defs/reference"}], **outside}
    return members


def _properties(schema: Mapping[str, object]) -> dict[str, dict[str, object]]:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _or_null(schema: Mapping[str, object]) -> dict[str, object]:
    outside = {key: schema[key] for key in ("default", "description") if key in schema}
    inside = {key: value for key, value in schema.items() if key not in outside}
    return {"anyOf": [inside, {"type": "null"}], **outside}
