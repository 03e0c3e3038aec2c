"""What the demonstration tells, as values: whoever shows it decides how.  Pure."""

import msgspec

from quarterdeck.control.protocol import DossierView


class Event(msgspec.Struct, frozen=True, tag_field="event"):
    """One thing that is told."""


class Scene(Event, frozen=True, tag="scene"):
    """A chapter begins."""

    title: str


class Fact(Event, frozen=True, tag="fact"):
    """Something happened."""

    text: str


class Quote(Event, frozen=True, tag="quote"):
    """What the client was told, word for word."""

    text: str


class Death(Event, frozen=True, tag="death"):
    """What is known of how a server died."""

    server: str
    dossier: DossierView


class Table(Event, frozen=True, tag="table"):
    """Rows of one shape."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Promise(Event, frozen=True, tag="promise"):
    """Something that we promise, and whether it was kept."""

    text: str
    is_kept: bool


class End(Event, frozen=True, tag="end"):
    """The last one: how many promises were kept, and how long it all took."""

    kept: int
    broken: int
    took_s: float


Told = Scene | Fact | Quote | Death | Table | Promise | End
