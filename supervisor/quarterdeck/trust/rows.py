"""The servers of a configuration as trust sees them: whose word each is, how it is judged, how it would be launched."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from quarterdeck.config.origin import Origin, Standing
from quarterdeck_protocol.configs import ServerConfig

from .items import Document, launch_document
from .judging import Lock, Rules
from .scopes import scope_of_row


class Locks(Protocol):
    """A `deck.lock`."""

    def for_server(self, server: str) -> Lock:
        """What it admits of one server."""
        ...


@dataclass(frozen=True, slots=True)
class Row:
    """One configured server.

    Attributes:
        scope: the file that it comes from; see `scope_of`.
        launch: how it would be started or reached.
    """

    config: ServerConfig
    scope: str
    rules: Rules
    launch: Document

    @property
    def id(self) -> str:
        """The server's id."""
        return self.config.id


def row_of(config: ServerConfig, origin: Origin | None, lock: Locks | None = None, key: bytes = b"") -> Row:
    """The row of one server; one without an origin is an embedding program's.

    Args:
        config: the server.
        origin: where it is written down.
        lock: a `deck.lock` that it is held to.
        key: of the stand-ins for secrets in the user's own rows; see `launch_document`.
    """
    standing = origin.standing if origin is not None else Standing.CODE
    path = origin.path if origin is not None else None
    raw: Mapping[str, object] | None = origin.row if origin is not None and path is not None else None
    rules = Rules(config.trust, standing, lock.for_server(config.id) if lock is not None else None)
    shown = None if standing is Standing.PROJECT else key
    return Row(config, scope_of_row(origin), rules, launch_document(config, raw, shown))
