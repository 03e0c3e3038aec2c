"""The differences between servers and a lock, as texts for the judge of a change. Pure.

A lock has hashes alone, so that each text has both, and the offered form.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from quarterdeck.trust.judge.documents import Document, value_of
from quarterdeck.trust.lock.lockfile import DeckLock, Drift, LockChange, drift

MAX_FORMS: Final = 20  # differences that are told with their form
MAX_FORM_LINES: Final = 60  # of each


def told_drifts(lock: DeckLock, present: Mapping[str, Iterable[Document]]) -> list[tuple[str, str]]:
    """Return each difference: the server, and a text of some lines."""
    documents = {server: list(found) for server, found in present.items()}
    found = drift(lock, documents)
    return [
        (each.server, "\n".join(_lines(each, lock, documents, with_form=number < MAX_FORMS)))
        for number, each in enumerate(found)
    ]


def _lines(
    found: Drift, lock: DeckLock, documents: Mapping[str, Iterable[Document]], *, with_form: bool
) -> Iterator[str]:
    if found.key is None:
        is_absent = found.what is LockChange.ABSENT
        yield f"{found.server}: the lock names it, and it does not run" if is_absent else f"{found.server}: not locked"
        return
    name = json.dumps(found.key.name)[1:-1]
    yield f"{found.server}: {found.key.subject.value} {name}".rstrip() + f" {found.what.value}"
    locked = lock.servers[found.server].forms.get(found.key)
    offered = next((each for each in documents.get(found.server, ()) if each.key == found.key), None)
    if locked is not None:
        yield f"- {locked}"
    if offered is not None:
        yield f"+ {lock.ignores.of(found.server).form_of(found.server, offered)}"
        if with_form:
            yield from (f"  {line}" for line in _form(offered))


def _form(document: Document) -> Iterator[str]:
    """Yield the offered form: a member a line, sorted; ASCII alone, so that hidden characters are seen."""
    lines = json.dumps(value_of(document.body), indent=2, sort_keys=True).splitlines()
    yield from lines[:MAX_FORM_LINES]
    if len(lines) > MAX_FORM_LINES:
        yield f"and {len(lines) - MAX_FORM_LINES} more lines"
