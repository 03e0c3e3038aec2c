"""What a session waits for its tools: a deck of every profile, with its box, once the process is warm."""

import time
from pathlib import Path
from typing import Final

from support.config.places import short_folder

from quarterdeck.common.tool_names import Profile
from quarterdeck.tools.card_types import DeckContext, DeckFramework
from quarterdeck.tools.catalogue import provision_deck
from quarterdeck.tools.checkpoint.store import FileCheckpointStore

from .finding import Finding, Target
from .rounds import Effort, Sample, alternate

DECK_MS: Final = Target(required=5.0, goal=1.0)

DECKS_A_SAMPLE: Final = 50


async def measure(effort: Effort) -> list[Finding]:
    """The mean of so many decks, each with a checkpoint store and a local context of its own; the median of those."""
    with short_folder() as folder:
        started = time.perf_counter()
        _provision(Profile.ALL, folder)
        first_ms = (time.perf_counter() - started) * 1000
        profiles = list(Profile)
        tables = await alternate(effort.rounds * effort.repeats, *(_sample(each, folder) for each in profiles))
    return [
        Finding(
            f"a session's deck, profile {profile}",
            "ms",
            DECK_MS,
            sorted(times)[len(times) // 2],
            note=f"slowest of {len(times)}: {max(times):.2f} ms; the process's first, with imports: {first_ms:.0f} ms",
        )
        for profile, times in zip(profiles, tables, strict=True)
    ]


def _sample(profile: Profile, folder: Path) -> Sample:
    async def sample() -> float:
        started = time.perf_counter()
        for _ in range(DECKS_A_SAMPLE):
            _provision(profile, folder)
        return (time.perf_counter() - started) * 1000 / DECKS_A_SAMPLE

    return sample


def _provision(profile: Profile, folder: Path) -> None:
    framework = DeckFramework(read_state=object(), checkpoint=FileCheckpointStore(folder / "checkpoints"))
    box = provision_deck(profile, DeckContext(str(folder), framework)).into_tool_box()
    assert box.descriptors()
