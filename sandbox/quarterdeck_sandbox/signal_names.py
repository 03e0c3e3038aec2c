"""The names of signals, apart from the code that sends them: reporting a death needs nothing else."""

import signal


def signal_name(number: int) -> str:
    """Return `SIGKILL` for 9, and `signal 40` for a number without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
