"""Who we say we are."""

from importlib.metadata import version

from quarterdeck_protocol.identity import CLIENT_NAME, CLIENT_VERSION


def test_we_announce_ourselves_by_the_installed_version() -> None:
    """Servers and clients would log a version that nobody can install."""
    assert CLIENT_NAME == "quarterdeck"
    assert version("quarterdeck") == CLIENT_VERSION
