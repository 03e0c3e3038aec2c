"""An unusable part of the configuration, as every view shows it.  Pure."""

import msgspec

from quarterdeck_protocol.faults import REMEDIES


class Trouble(msgspec.Struct, frozen=True):
    """An unusable part of the configuration.

    Attributes:
        message: file, position and reason, in one line.
        meanwhile: the configuration that runs instead.
        remedy: an action for a person.
        server: the id of the row; empty for a whole file, or for a key outside the rows.
        is_listed: whether the row is shown among the servers, as one that cannot be started.
    """

    message: str
    meanwhile: str
    remedy: str = REMEDIES["config_invalid"]
    server: str = ""
    is_listed: bool = False
