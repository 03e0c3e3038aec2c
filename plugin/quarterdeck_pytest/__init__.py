"""`pytest-quarterdeck`: test MCP servers in sandboxes, shared by xdist's workers, with nothing left behind.

`plugin` is what pytest loads, in every run of everybody who has the product installed.  It imports nothing of the
product before a fixture asks, else coverage would miss what was imported before it started.
"""
