"""The built-in tools, one module each: a factory without arguments, `<name>_tool()`."""
