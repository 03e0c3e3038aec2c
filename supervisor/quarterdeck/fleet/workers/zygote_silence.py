"""When a zygote that owes an answer is given up.  Pure."""

from typing import Final

import msgspec

LOOK_S: Final = 1.0
"""Seconds between two looks at a zygote that owes an answer. Looks are counted, not seconds: a machine that slept, or
whose processes were all frozen together, is no zygote that hangs.
"""

STOPPED_LOOKS: Final = 10
"""Looks after which a stopped zygote (SIGSTOP, a debugger, a frozen control group) is killed."""

SILENT_LOOKS: Final = 60
"""Looks without an answer after which a running one is: a fork takes milliseconds, on an overloaded machine seconds."""

START_LOOKS: Final = 180
"""Looks for one that starts: imports take two seconds of a processor, and its probes have deadlines of their own."""


class ZygoteSilence(msgspec.Struct):
    """Whether a zygote that owes an answer hangs, looked at every `LOOK_S`.  Pure."""

    silent: int = 0
    stopped: int = 0

    def answered(self) -> None:
        """Begin to count again: it said something."""
        self.silent = self.stopped = 0

    def look(self, *, is_ready: bool, is_stopped: bool) -> str:
        """Return why it is given up now, or an empty string. `is_ready`: it has said that it can fork; `is_stopped`: it
        cannot run at this moment.
        """
        self.silent += 1
        self.stopped = self.stopped + 1 if is_stopped else 0
        if self.stopped >= STOPPED_LOOKS:
            return f"it has been stopped for {self.stopped * LOOK_S:.0f} s"
        if self.silent >= (SILENT_LOOKS if is_ready else START_LOOKS):
            return f"it has answered nothing for {self.silent * LOOK_S:.0f} s"
        return ""
