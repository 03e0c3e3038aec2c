"""Other programs' configuration: where MCP clients keep their servers, what a row of theirs means here, and how one
entry of such a file is changed without touching the rest.
"""
