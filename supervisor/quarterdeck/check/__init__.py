"""`quarterdeck check`: a ready suite over any MCP server: what it does with what clients send, and what it touches.

    catalogue    what is checked, as data
    scenario     what is tried, each part an `Episode` of exchanges: with a process, confined (`process_scenario`),
                 or with a remote server (`remote_scenario`)
    judge        verdicts of recorded episodes; pure
    verdicts     what came of it, check by check
    report       the same for people and for programs; pure

`run` puts them together.  Nothing here trusts what a server writes: it is bounded when it is read, and shown escaped.
"""
