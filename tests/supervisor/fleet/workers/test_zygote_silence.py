"""How long a zygote may owe an answer."""

from quarterdeck.fleet.workers.zygote_silence import SILENT_LOOKS, START_LOOKS, STOPPED_LOOKS, ZygoteSilence


def looks_until_given_up(*, is_ready: bool, is_stopped: bool) -> int:
    silence = ZygoteSilence()
    looks = 1
    while not silence.look(is_ready=is_ready, is_stopped=is_stopped):
        looks += 1
    return looks


def test_silence_is_short_with_who_cannot_run_and_long_with_who_is_slow() -> None:
    """An overloaded machine would have its servers killed, or one that hangs would hold up every start."""
    assert looks_until_given_up(is_ready=True, is_stopped=True) == STOPPED_LOOKS
    assert looks_until_given_up(is_ready=True, is_stopped=False) == SILENT_LOOKS
    assert looks_until_given_up(is_ready=False, is_stopped=False) == START_LOOKS
    silence = ZygoteSilence()
    for _ in range(SILENT_LOOKS - 1):
        assert not silence.look(is_ready=True, is_stopped=False)
    silence.answered()
    assert not silence.look(is_ready=True, is_stopped=False)
    for _ in range(STOPPED_LOOKS - 1):
        assert not silence.look(is_ready=True, is_stopped=True)
    assert not silence.look(is_ready=True, is_stopped=False)  # it goes on
    assert not silence.look(is_ready=True, is_stopped=True)
