"""What signals are called."""

from quarterdeck_sandbox import signal_name


def test_signals_have_names_where_the_system_knows_one() -> None:
    assert signal_name(9) == "SIGKILL"
    assert signal_name(999) == "signal 999"
