"""A stream of changes of 2026-07-28: the request that opens it, its acknowledgement, and the messages on it.  Pure.

The answer to the request ends the stream.  Source: 2026-07-28, "Subscriptions" (SEP-2575); tasks: SEP-2663.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw

from .answers import SUBSCRIPTION_KEY, notification
from .methods import DECODERS, Listen
from .requests import Request

MAX_RESOURCES: Final = 200
"""Resources that one stream may name; of more, these are told of."""

MAX_TASKS: Final = 100
"""Likewise tasks."""

LIST_CHANGES: Final = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}
"""The member of a request that asks for each notification."""


class ChangeStream:
    """One stream.

    Attributes:
        resources: the URIs that it names.
        tasks: the tasks that it names.
    """

    def __init__(self, request: Request) -> None:
        """Read a judged `subscriptions/listen`."""
        asked = DECODERS["subscriptions/listen"].decode(request.arguments)
        assert isinstance(asked, Listen)
        wanted = asked.notifications
        self.resources: Final = tuple(dict.fromkeys(wanted.resource_subscriptions or ()))[:MAX_RESOURCES]
        self.tasks: Final = _texts(wanted.task_ids)[:MAX_TASKS]
        self._flags = {
            "toolsListChanged": wanted.tools_list_changed,
            "promptsListChanged": wanted.prompts_list_changed,
            "resourcesListChanged": wanted.resources_list_changed,
        }
        self._id = Raw(request.id_json)

    def wants(self, method: str) -> bool:
        """Whether a change of a list is told."""
        return bool(self._flags.get(LIST_CHANGES.get(method, "")))

    def acknowledgement(self, resources: Sequence[str], tasks: Sequence[str]) -> bytes:
        """Return the first message, which names what of the wanted is told."""
        honored: dict[str, object] = {name: True for name, is_wanted in self._flags.items() if is_wanted}
        honored |= {"resourceSubscriptions": resources} if resources else {}
        honored |= {"taskIds": tasks} if tasks else {}
        return self.message("notifications/subscriptions/acknowledged", {"notifications": honored})

    def message(self, method: str, params: dict[str, object]) -> bytes:
        """Return a message of the stream, with its mark."""
        meta = params.get("_meta")
        marked = {**meta, SUBSCRIPTION_KEY: self._id} if isinstance(meta, dict) else {SUBSCRIPTION_KEY: self._id}
        return notification(method, {**params, "_meta": marked})


def _texts(ids: Raw) -> tuple[str, ...]:
    """The texts of a list, each once; none of what is not a list."""
    try:
        found = msgspec.json.decode(ids) if bytes(ids) else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
    return tuple(dict.fromkeys(each for each in found if isinstance(each, str))) if isinstance(found, list) else ()
