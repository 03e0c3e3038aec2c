"""What the demonstration says of how its servers are confined."""

import pytest

from quarterdeck.control.protocol import SandboxView
from quarterdeck.demo.run import describe_sandbox


@pytest.mark.parametrize(
    ("sandbox", "said"),
    [
        (SandboxView("limits", "full", ("filesystem: reads and writes what you can",)), "nothing on this machine"),
        (SandboxView("landlock", "full", ("user: root without capabilities, as …",)), "as root without capabilities;"),
        (SandboxView("landlock", "full", ("network: REACHABLE",)), "confined by landlock; what is weaker"),
        (SandboxView("bubblewrap", "internet", ()), "each is confined by bubblewrap"),
    ],
)
def test_it_says_what_confines_the_servers(sandbox: SandboxView, said: str) -> None:
    """A new user would take a demonstration without a sandbox for one with."""
    assert said in describe_sandbox(sandbox)
