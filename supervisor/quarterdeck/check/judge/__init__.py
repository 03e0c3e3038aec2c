"""Verdicts of what was recorded: each module judges one side of it, and knows nothing of the others.  Pure.

A verdict without a problem says that a check was tried and held; a check of which there is no verdict was not tried.
"""

from collections.abc import Iterator
from itertools import chain

from quarterdeck.check.episode import Recording
from quarterdeck.check.verdicts import Verdict

from . import calls, definitions, effects, endings, greetings, http, lists, messages


def judge(recording: Recording) -> Iterator[Verdict]:
    """All verdicts."""
    sides = (greetings, messages, lists, definitions, calls, endings, http if recording.is_remote else effects)
    return chain.from_iterable(side.judge(recording) for side in sides)
