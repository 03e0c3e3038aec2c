"""Have a server speak the older era from its next start on, when it breaks the newer one that it chose."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from quarterdeck_protocol.configs import Revision, ServerConfig
from quarterdeck_protocol.faults import ProtocolFault
from quarterdeck_protocol.tools import CallEnd, Deliver

from .worker_session import OLDER_ERA

_ERA_MARK: Final = "resultType"
"""In the message of a server that refuses its own results: they lack what the newer era asks for."""

_log = logging.getLogger("quarterdeck.fleet")


class EraFallback:
    """See the module.

    Attributes:
        era: the revision that was agreed; empty before.
    """

    def __init__(self, config: ServerConfig, try_older: Callable[[], bool]) -> None:
        """`try_older` has the next start try the older era, and says whether it does: see `Session`."""
        self.era = ""
        self._config = config
        self._try_older = try_older

    def try_older(self) -> bool:
        """Have its next start try the older era, as it breaks the newer one; whether it does.

        Once, and never where its configuration forces a revision.
        """
        return self._is_possible and self._try_older()

    def watching(self, deliver: Deliver) -> Deliver:
        """`deliver`, and a look at how a call ended; itself where no older era would be tried."""
        return partial(self._judge, deliver) if self._is_possible else deliver

    @property
    def _is_possible(self) -> bool:
        """Whether it speaks the newer era, by its own choice."""
        return self.era >= Revision.R2026_07_28 and self._config.protocol is None

    def _judge(self, deliver: Deliver, end: CallEnd) -> None:
        is_refused = isinstance(end, ProtocolFault) and end.code == "reply_error"
        if is_refused and _ERA_MARK in str(end) and self.try_older():
            server = self._config.id
            now = f"`quarterdeck restart {server}` does now"
            _log.warning(
                "%s violates %s, the revision it chose: its next start tries %s; %s", server, self.era, OLDER_ERA, now
            )
        deliver(end)
