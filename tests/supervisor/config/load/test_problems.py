"""All complaints of a model, not only its first."""

from quarterdeck.config.load.problems import judge
from quarterdeck_protocol.configs import StdioServerConfig

PLACE = "mcpServers.fs"


def said(**fields: object) -> list[str]:
    value, problems = judge(StdioServerConfig, {"id": "fs", **fields}, PLACE)
    assert (value is None) == bool(problems)
    return [str(problem).removeprefix(PLACE) for problem in problems]


def test_everything_is_found_behind_an_unknown_key_too() -> None:
    """A user would correct one mistake after the other, a start for each."""
    sandbox = {"raed": [], "wirte": [], "limits": {"memory": 1, "processes": "x"}, "network": "off"}
    found = said(command="", args=[5], sandbox=sandbox)
    assert sorted(found) == [
        ".args[0]: expected a string, got 5",
        ".command: must not be empty",
        ".sandbox.limits.processes: expected a whole number, got a string",
        ".sandbox.limits: unknown key 'memory': did you mean 'memory_bytes'?",
        ".sandbox.network: must be 'none', 'loopback', 'internet', 'full' or a list of host:port",
        ".sandbox: unknown key 'raed': did you mean 'read'?",
        ".sandbox: unknown key 'wirte': did you mean 'write'?",
    ]


def test_a_number_written_as_true_is_found_beside_other_mistakes() -> None:
    """`"processes": true` would mean one process."""
    assert said(command="c", call_timeout_s=True) == [".call_timeout_s: expected a number, got true"]
    assert said(command="c", call_timeout_s=True, args=[5]) == [
        ".args[0]: expected a string, got 5",
        ".call_timeout_s: expected a number, got true",
    ]
    assert said(command="c", args=True) == [".args: expected an array, got true"]
