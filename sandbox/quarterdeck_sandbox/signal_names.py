"""What people call a signal.  Apart from what sends one, so that who only tells of a death loads nothing else."""

import signal


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; a number that the system has no name for as `signal 40`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
