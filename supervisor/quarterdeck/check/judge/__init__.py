"""Verdicts of what was recorded: each module judges one side of it, and knows nothing of the others.  Pure.

A verdict without a problem says that a check was tried and held; a check of which there is no verdict was not tried.
"""

from collections.abc import Iterator
from itertools import chain

from quarterdeck.check.episode import Recording
from quarterdeck.check.verdicts import Verdict

from .behaviour import judge_decoys, judge_effects, judge_endings
from .calls import judge as judge_calls
from .definitions import judge as judge_definitions
from .protocol import judge_greetings, judge_http, judge_lists, judge_messages


def judge(recording: Recording) -> Iterator[Verdict]:
    """Yield all verdicts."""
    sides = (
        *(judge_greetings, judge_messages, judge_lists, judge_definitions, judge_calls, judge_endings),
        *((judge_http,) if recording.is_remote else (judge_effects, judge_decoys)),
    )
    return chain.from_iterable(side(recording) for side in sides)
