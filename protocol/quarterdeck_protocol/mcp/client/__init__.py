"""The client's side of one MCP connection over lines, in both eras.  Pure: no socket, no process, no clock, no SDK.

It owes: the greeting in every revision, ids, progress tokens, cancelling both ways, whole lists with bounds, the modern
era's envelope and standing subscription, the server's own requests, deadlines.  What is inside params, results and
items it hands on as bytes, checked once for what their readers refuse (UTF-8, depth, digits), never rebuilt.

    relay = Relay(Client("quarterdeck", version), now=clock(), max_bytes=…, forced=row.protocol)
    write(relay.take())                                  # the greeting's first line
    for line in buffer.feed(data):                       # `jsonrpc.LineBuffer` bounds the lines
        for event in relay.receive(line, clock()):
            match event: case Greeted(server): … case Answered(request_id, result): … case Junk(line): …
    relay.call(7, "echo", b'{"text":"hi"}', meta=b"", progress=True)      # None when it was taken, else a Refusal
    relay.request(8, "resources/read", b'{"uri":"file:///a"}')            # any other request, likewise
    relay.list_all(9, "tools/list", clock())             # ends in Listed(9, b"[…]"), as the server's own bytes

The caller's duties, after any entry: write what `take` gives, unless the server does not read (a relay keeps no more
than `MAX_REPLY_BYTES` of answers to such a server); arm a timer for `wake_at` and call `advance` when it rings.  Before
`Greeted` nothing is taken (`Refusal.NOT_OPEN`); after `GreetingFailed`, and when the connection ends, the relay is of
no further use.  A refused request was never sent; the outcome of what has no answer at the end is unknown.

A carrier with a connection for each request, as HTTP has, says `to` which request a line is the answer, asks whether
the relay still `awaits` one, and has one `fail` that it cannot deliver.

Each request of the caller's ends once, in an event (`Answered`, `Listed`, `ListingFailed`, `Refused`, `Spoiled`,
`Failed`); `events.fault_of` makes faults of the bad ends.  Late, forged and second answers are dropped.  How many
notifications, of at most 1 MiB, are passed on is the caller's to bound.  A server's requests are answered here but for
those that the caller `offers`: these are `Asked`, and end with `answer`, `refuse` or `AskEnded`.  In the modern era ask
to `listen` after `Greeted`.
"""

from . import events
from .connection import FIRST_ID, Relay
from .eras import HANDSHAKE_REVISIONS, MODERN_REVISIONS, Client, is_modern
from .events import Refusal, RelayMisuseError
from .paging import MEMBERS, METHODS

__all__ = [
    "FIRST_ID",
    "HANDSHAKE_REVISIONS",
    "MEMBERS",
    "METHODS",
    "MODERN_REVISIONS",
    "Client",
    "Refusal",
    "Relay",
    "RelayMisuseError",
    "events",
    "is_modern",
]
