"""A server that is an object of the tests' own process; its tool runs in a thread of the plugin's."""

from mcp.server import MCPServer

app = MCPServer("doubler")


@app.tool()
def double(number: int) -> int:
    if number < 0:
        return 0  # never reached
    return 2 * number
