"""A policy by its options, and what a policy says, said in options."""

import inspect

import pytest

from quarterdeck.cli.run import sandbox_options
from quarterdeck.cli.run.sandbox_options import OPTIONS, in_options


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ('/a: add "read": ["/a"] or "write": ["/a"] to its sandbox', "/a: add --read /a or --write /a"),
        ('/a b is hidden: add "read": ["/a b"] to its sandbox', "/a b is hidden: add --read '/a b'"),
        ('add "grants": ["aws"], or "read": ["/h/.aws"], to its sandbox', "add --grant aws, or --read /h/.aws"),
        ('add "hidden": ["/h/.ssh"], or name it in "read"', "add --hide /h/.ssh, or name it in --read"),
        ('"write" names /x, which does not exist', "--write names /x, which does not exist"),
        ('add "network": ["a:1", "b:2"]', "add --network a:1 --network b:2"),
        ('add "network": ["HOST:PORT"], or "internet"', "add --network HOST:PORT, or --network internet"),
        ('a:443 is not in its "network"; add "a:443"', "a:443 is not in its network; add --network a:443"),
        ('or say "network": "full" to leave it open', "or use --network full to leave it open"),
        ("use a grant, or the preset 'trusted'", "use --grant, or --preset trusted"),
        ('only the preset "trusted" allows it', "only --preset trusted allows it"),
        ('the grant "display" would open', "--grant display would open"),
        ('use "preset": "standard"', "use --preset standard"),
        ('raise "limits": {"memory_bytes": …}', "raise --limit memory_bytes=…"),
        ('say "minimum": "limits" to start', 'say "minimum": "limits" in the file of --policy to start'),
        ('take it out of "require"', 'take it out of "require" in the file of --policy'),
        ("cat is not on the server's PATH (/bin)", "there is no command cat on PATH: give its full path"),
        ('bash: "ready": command not found', 'bash: "ready": command not found'),
    ],
)
def test_a_key_is_said_as_its_option(said: str, shown: str) -> None:
    """Whoever types a command would look for a file in which to write JSON."""
    assert in_options(said) == shown


def test_each_option_exists() -> None:
    """A hint would name an option that the command refuses."""
    parameters = inspect.signature(sandbox_options._wish).parameters
    assert {option.removeprefix("--") for option in OPTIONS.values()} <= set(parameters)
