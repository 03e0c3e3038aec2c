"""One client's session, carried out: what needs no server is answered here, the rest is begun where its owner is.

Above it the carriers (`host.stdio`, `host.http`), which know no method; below it the content that clients are shown.
"""
