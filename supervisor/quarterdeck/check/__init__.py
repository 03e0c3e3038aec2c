"""`quarterdeck check`: a ready suite over any MCP server: what it does with what clients send, and what it touches.

    catalogue    what is checked, as data
    scenario     drives the server: a few starts of its process, confined, each an `Episode` of exchanges
    judge        verdicts of recorded episodes; pure
    verdicts     what came of it, check by check
    report       the same for people and for programs; pure

`run` puts them together.  Nothing here trusts what a server writes: it is bounded when it is read, and shown escaped.
"""
