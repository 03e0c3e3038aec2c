"""The names that tests annotate and catch."""

import subprocess
import sys

import pytest

import quarterdeck_pytest
from quarterdeck_pytest import McpServer, ProtocolFault
from quarterdeck_pytest.client.server import McpServer as Defined

pytestmark = pytest.mark.process


def test_each_name_is_there_and_no_other() -> None:
    """A test would have to know where in the plugin a class is, or a typing error would pass."""
    for name in quarterdeck_pytest.__all__:
        assert getattr(quarterdeck_pytest, name).__name__ == name
    assert McpServer is Defined
    assert issubclass(ProtocolFault, Exception)
    with pytest.raises(AttributeError, match="no attribute 'McpSever'"):
        _ = quarterdeck_pytest.McpSever


def test_nothing_is_loaded_before_a_name_is_asked_for() -> None:
    """Coverage would miss what was imported before it started."""
    look = "import sys, quarterdeck_pytest; print([name for name in sys.modules if name.startswith('quarterdeck')])"
    ended = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "['quarterdeck_pytest']"
