"""A part of the configuration that cannot be used, as every view shows it.  Pure."""

import msgspec

from quarterdeck_protocol.faults import REMEDIES


class Trouble(msgspec.Struct, frozen=True):
    """A part of the configuration that cannot be used.

    Attributes:
        message: file, place and reason, one line.
        meanwhile: what runs in its place.
        remedy: what a person can do.
        server: the id of the row; empty for a whole file, or a key beside the rows.
        is_listed: whether the row is shown among the servers, as one that cannot be started.
    """

    message: str
    meanwhile: str
    remedy: str = REMEDIES["config_invalid"]
    server: str = ""
    is_listed: bool = False
