"""The guard against a message that never ends."""

from quarterdeck.fleet.memory_guard import MemoryGuard, Sample

MIB = 1024 * 1024
ALLOWANCE = 512 * MIB


def test_a_busy_worker_that_delivers_nothing_while_memory_grows_is_named() -> None:
    """A compromised worker could otherwise fill the supervisor's memory and take every server with it."""
    guard = MemoryGuard(ALLOWANCE)
    guard.look(100 * MIB, {1: Sample(0.0, 10), 2: Sample(0.0, 10)}, now=0.0)
    assert guard.look(700 * MIB, {1: Sample(0.9, 10), 2: Sample(0.9, 500)}, now=1.0) == (1,)


def test_growth_that_was_delivered_is_nobodys_fault() -> None:
    """A server with large results must not cost its neighbours their lives."""
    guard = MemoryGuard(ALLOWANCE)
    guard.look(100 * MIB, {1: Sample(0.0, 0), 2: Sample(0.0, 0)}, now=0.0)
    assert guard.look(900 * MIB, {1: Sample(0.9, 800 * MIB), 2: Sample(0.9, 0)}, now=1.0) == ()


def test_an_idle_worker_is_not_named_when_the_program_around_us_grows() -> None:
    """An embedding program may load a model; the servers have nothing to do with that."""
    guard = MemoryGuard(ALLOWANCE)
    guard.look(100 * MIB, {1: Sample(0.0, 0)}, now=0.0)
    assert guard.look(2_000 * MIB, {1: Sample(0.01, 0)}, now=1.0) == ()


def test_a_flood_that_takes_several_looks_is_still_seen() -> None:
    """A flood slow enough to stay under the allowance each second must not pass for ever."""
    guard = MemoryGuard(ALLOWANCE)
    named = [guard.look((100 + 200 * second) * MIB, {1: Sample(0.5 * second, 7)}, now=second) for second in range(6)]
    assert named[0] == ()
    assert named[-1] == (1,)


def test_slow_growth_is_forgiven() -> None:
    """A day of ordinary growth must not add up to a verdict."""
    guard = MemoryGuard(ALLOWANCE)
    for second in range(600):
        assert guard.look((100 + 10 * second) * MIB, {1: Sample(0.5 * second, 7)}, now=second) == ()


def test_a_worker_that_was_not_there_before_is_not_judged() -> None:
    """A restart in the middle of a flood must not kill the newcomer."""
    guard = MemoryGuard(ALLOWANCE)
    guard.look(100 * MIB, {}, now=0.0)
    assert guard.look(900 * MIB, {2: Sample(0.9, 0)}, now=1.0) == ()
