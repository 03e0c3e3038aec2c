"""The names of native tools, without the tools."""

from quarterdeck.config.native_names import NATIVE_NAMES
from quarterdeck.tools.catalogue import capability_ids


def test_the_names_are_the_catalogues() -> None:
    """A server's tool that poses as a native one would not be found out."""
    assert set(capability_ids()) == NATIVE_NAMES
