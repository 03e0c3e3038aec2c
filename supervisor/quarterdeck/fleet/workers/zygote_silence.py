"""When a zygote that owes an answer is given up.  Pure."""

from typing import Final

import msgspec

LOOK_S: Final = 1.0
"""Seconds between two looks at a zygote that owes an answer. Looks are counted, not seconds: a machine that slept, or
whose processes were all frozen together, is no zygote that hangs.
"""

STOPPED_LOOKS: Final = 10
"""A zygote that is stopped (SIGSTOP, a debugger, a frozen control group) for so many looks is killed."""

SILENT_LOOKS: Final = 60
"""One that runs, and still answers nothing: a fork takes milliseconds, an overloaded machine some seconds."""

START_LOOKS: Final = 180
"""The same while it starts: its imports take two seconds of a processor, and what it tries has deadlines of its own."""


class ZygoteSilence(msgspec.Struct):
    """Whether a zygote that owes an answer hangs, looked at every `LOOK_S`.  Pure."""

    silent: int = 0
    stopped: int = 0

    def answered(self) -> None:
        """It said something: all begins anew."""
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
