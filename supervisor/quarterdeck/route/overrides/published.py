"""What clients are shown of one server's approved tools, prompts and resources, by what the user overrides.  Pure.

The one way from approved definitions to published ones; whose door sees which of these is decided above, by name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec
from msgspec import Raw

from quarterdeck.config.overrides import ServerOverrides, Words
from quarterdeck_protocol.contract import RemoteTool
from quarterdeck_protocol.names import RemoteToolRef, qualify_tool_name
from quarterdeck_protocol.offers import Listing, Offered
from quarterdeck_protocol.schema.portable import portable_schema

from .schemas import ArgumentError, without_arguments


class PublishedTools(msgspec.Struct, frozen=True):
    """The tools of one server as clients see them.

    Attributes:
        tools: under their public names, in the server's order.
        own: what the server calls these, by their qualified public names.
        refused: by the server's own name why a tool is not shown that is not hidden.
    """

    tools: tuple[RemoteTool, ...] = ()
    own: Mapping[str, str] = msgspec.field(default_factory=dict)
    refused: Mapping[str, str] = msgspec.field(default_factory=dict)


def publish_tools(tools: Sequence[RemoteTool], overrides: ServerOverrides) -> PublishedTools:
    """The tools as the user wants them shown.

    A new name is what it was given to, whether that is there or not: another tool that the server calls so is not
    shown.  Nor is one whose definition cannot be shown without an argument that the user gives: it would be called
    without the bound that was set.
    """
    shown: list[RemoteTool] = []
    names: dict[str, str] = {}
    refused: dict[str, str] = {}
    for tool in tools:
        own = tool.ref.name
        if overrides.hides(own):
            continue
        if overrides.own(overrides.public(own)) != own:
            refused[own] = "'rename' gives its name to another"
            continue
        try:
            published = _published(tool, overrides)
        except ArgumentError as error:
            refused[own] = str(error)
        else:
            shown.append(published)
            names[published.descriptor.name] = own
    return PublishedTools(tuple(shown), names, refused)


def publish_offers(listing: Listing, offered: Sequence[Offered], overrides: ServerOverrides) -> tuple[Offered, ...]:
    """Prompts, resources or templates likewise; URIs keep theirs."""
    if listing is not Listing.PROMPTS:
        return tuple(each for each in offered if not overrides.hides(each.key))
    return tuple(
        _published_prompt(each, overrides)
        for each in offered
        if not overrides.hides(each.key) and overrides.own(overrides.public(each.key)) == each.key
    )


def _published(tool: RemoteTool, overrides: ServerOverrides) -> RemoteTool:
    """One tool under its public name.

    Raises:
        ArgumentError: see `without_arguments`.
    """
    own, descriptor = tool.ref.name, tool.descriptor
    ref = RemoteToolRef(tool.ref.server, overrides.public(own))
    words, given = overrides.describe.get(own), overrides.arguments.get(own)
    if ref == tool.ref and words is None and not given:
        return tool
    members = _members.decode(descriptor.definition or b"{}")
    _say(members, ref.name, words)
    parameters = descriptor.parameters
    if given:
        edited = without_arguments(bytes(members.get("inputSchema", b"{}")), given)
        members["inputSchema"] = Raw(edited)
        parameters = portable_schema(msgspec.json.decode(edited))
    said = words.description if words is not None else None
    shown = replace(
        descriptor,
        name=qualify_tool_name(ref),
        description=descriptor.description if said is None else said,
        parameters=parameters,
        definition=msgspec.json.encode(members) if descriptor.definition is not None else None,
    )
    return RemoteTool(ref, shown)


def _published_prompt(prompt: Offered, overrides: ServerOverrides) -> Offered:
    public, words = overrides.public(prompt.key), overrides.describe.get(prompt.key)
    if public == prompt.key and words is None:
        return prompt
    members = _members.decode(prompt.definition)
    _say(members, public, words)
    return msgspec.structs.replace(prompt, key=public, public=public, definition=msgspec.json.encode(members))


def _say(members: dict[str, Raw], name: str, words: Words | None) -> None:
    """Put the user's words into a definition in place of the server's."""
    members["name"] = _encoded(name)
    if words is None:
        return
    if words.description is not None:
        members["description"] = _encoded(words.description)
    if words.title is not None:
        members["title"] = _encoded(words.title)
        if "annotations" in members:  # which may have a title, too, that some clients show instead
            annotations = msgspec.json.decode(members["annotations"])
            if isinstance(annotations, dict) and annotations.pop("title", None) is not None:
                members["annotations"] = _encoded(annotations)


def _encoded(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


_members: Final = msgspec.json.Decoder(dict[str, Raw])
