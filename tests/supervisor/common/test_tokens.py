"""What tools cost a model, about."""

from support.servers.real_tools import read_servers

from quarterdeck.common.tokens import estimated_tokens, tokens_of_tool


def test_a_tool_costs_what_models_are_given_of_it() -> None:
    """Icons and output schemas, which no model reads, would make a deck look too large."""
    plain = {"name": "read", "description": "Reads.", "inputSchema": {"type": "object"}}
    assert (
        tokens_of_tool(plain)
        == estimated_tokens('{"name":"read","description":"Reads.","inputSchema":{"type":"object"}}')
        == 16
    )
    assert tokens_of_tool({**plain, "icons": ["x" * 999], "outputSchema": {"a": 1}, "title": "Read"}) == 16


def test_public_servers_cost_what_a_tokeniser_counts() -> None:
    """The figures would mislead; `o200k_base` counted 304,463 over the same."""
    total = sum(tokens_of_tool(tool) for server in read_servers() for tool in server.tools)
    assert abs(total / 304_463 - 1) < 0.02
