"""What every carrier needs of calls."""

from quarterdeck.host.calls import alone


def test_an_exception_alone_in_its_groups_is_taken_out():
    """A group says nothing to a person."""
    error, other = ValueError("a"), ValueError("b")
    assert alone(ExceptionGroup("g", [ExceptionGroup("h", [error])])) is error
    group = ExceptionGroup("g", [error, other])
    assert alone(group) is group
