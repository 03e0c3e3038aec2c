"""Take what a server lists, and ask for what it has and has not, in either era."""

from collections.abc import Callable
from typing import Final

from quarterdeck_protocol.schema.canonical import JsonValue

from .episode import MEMBERS, Members, items_of
from .requests import prompt_arguments
from .speaker import Speaker

MAX_PAGES: Final = 100

MAX_OFFERS: Final = 10
"""Prompts and resources that are got."""

CAPABILITY_OF: Final = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resources",
}


async def take_offers(
    peer: Speaker, greeting: Members, meta: Members, wait_s: Callable[[], float], *, gets: bool
) -> None:
    """Read all lists after a handshake, and ask for what exists and for what does not.

    `meta` goes into each request, `wait_s` returns the seconds for the next answer, `gets` also gets prompts and
    resources.
    """
    declared = greeting.get("capabilities")
    capabilities = declared if isinstance(declared, dict) else {}
    found: dict[str, list[JsonValue]] = {}
    for method, capability in CAPABILITY_OF.items():
        if capability in capabilities:
            found[method] = await _list(peer, method, meta, wait_s)
        elif method != "resources/templates/list":
            await peer.request(f"undeclared:{method}", method, meta, wait_s=wait_s())
    await peer.request("unknown-method", "quarterdeck/no-such-method", meta, wait_s=wait_s())
    if "tools" in capabilities:
        await peer.request("again:tools/list", "tools/list", meta, wait_s=wait_s())
        lost = {**meta, "cursor": "quarterdeck-no-such-cursor"}
        await peer.request("unknown-cursor", "tools/list", lost, wait_s=wait_s())
        params: Members = {**meta, "name": "quarterdeck-no-such-tool", "arguments": {}}
        await peer.request("unknown-tool", "tools/call", params, wait_s=wait_s())
    if "prompts" in capabilities:
        params = {**meta, "name": "quarterdeck-no-such-prompt"}
        await peer.request("unknown-prompt", "prompts/get", params, wait_s=wait_s())
    if "resources" in capabilities:
        params = {**meta, "uri": "quarterdeck://no/such/resource"}
        await peer.request("unknown-resource", "resources/read", params, wait_s=wait_s())
    if gets:
        await _get(peer, found, meta, wait_s)


async def _get(peer: Speaker, found: dict[str, list[JsonValue]], meta: Members, wait_s: Callable[[], float]) -> None:
    for item in found.get("prompts/list", ())[:MAX_OFFERS]:
        if isinstance(item, dict) and isinstance(name := item.get("name"), str):
            params: Members = {**meta, "name": name, "arguments": prompt_arguments(item)}
            await peer.request("prompt", "prompts/get", params, wait_s=wait_s(), subject=name)
    for item in found.get("resources/list", ())[:MAX_OFFERS]:
        if isinstance(item, dict) and isinstance(uri := item.get("uri"), str):
            params = {**meta, "uri": uri}
            await peer.request("resource", "resources/read", params, wait_s=wait_s(), subject=uri)


async def _list(peer: Speaker, method: str, meta: Members, wait_s: Callable[[], float]) -> list[JsonValue]:
    items: list[JsonValue] = []
    params, seen = meta, set[str]()
    for _ in range(MAX_PAGES):
        page = await peer.request(f"list:{method}", method, params, wait_s=wait_s(), subject=MEMBERS[method])
        items += items_of(page)
        cursor = page.result_members.get("nextCursor")
        if not isinstance(cursor, str) or cursor in seen:
            break
        seen.add(cursor)
        params = {**meta, "cursor": cursor}
    return items
