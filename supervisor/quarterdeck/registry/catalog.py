"""Query an MCP registry, or a file in its place: which servers match a word, and the details of one.

The registry is where the user's configuration says; it is not trusted.  A request is one bounded GET that may lead to
the host that was configured, and else only to the internet; `server_json` reads answers.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

import anyio

from quarterdeck.common.text_file import MissingFileError, TextFileError, read_text
from quarterdeck.config.load.own_keys import RegistryWish
from quarterdeck.config.web_policy import FetchPolicy
from quarterdeck.tools.web.fetch import Deadlines, Fetched, Fetcher, FetchError, FetchRefusedError

from .server_json import Entry, Page, RegistryFormatError, latest_of, matches, read_entry, read_file, read_page

MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
"""A page of the official registry, of 100 servers, has some 300 KB."""

MAX_FILE_BYTES: Final = 64 * 1024 * 1024

PAGE_ENTRIES: Final = 100
"""The most that the official registry gives at a time."""

MAX_PAGES: Final = 20

SEARCH_S: Final = 30.0
"""Seconds after which no further page is requested: each may take as long as `DEADLINES` allows."""

DEADLINES: Final = Deadlines(total_s=30.0, connect_s=10.0)
_VERSIONED: Final = re.compile(r"/v\d+(?:\.\d+)?$")
_API: Final = "/v0.1"
"""The version of the API where the address names none."""


class RegistryError(Exception):
    """The registry cannot be reached, or gave no usable answer: why, and what to do."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Found:
    """The servers that match; `unread` counts unreadable entries, `has_more` tells of servers beyond the limit."""

    entries: tuple[Entry, ...]
    unread: int = 0
    has_more: bool = False


class Catalog:
    """A registry, or the file in its place."""

    def __init__(self, wish: RegistryWish, fetcher: Fetcher | None = None) -> None:
        self._wish = wish
        self._fetcher = fetcher or _fetcher(wish)

    @property
    def shown(self) -> str:
        """Its address for messages: without anything but host and path."""
        if not self._wish.is_url:
            return self._wish.address
        parts = urlsplit(self._wish.address)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")

    async def search(self, word: str, most: int) -> Found:
        """Return the latest version of each server that matches, in the registry's order, `most` at most.  Raises
        `RegistryError`.
        """
        entries: list[Entry] = []
        unread = 0
        cursor = ""
        until = anyio.current_time() + SEARCH_S
        for _ in range(MAX_PAGES):
            page = await self._page(word, cursor)
            unread += page.unread
            entries = latest_of([*entries, *(entry for entry in page.entries if entry.status != "deleted")])
            is_last = not page.cursor or page.cursor == cursor
            cursor = "" if is_last else page.cursor
            if is_last or len(entries) > most or anyio.current_time() > until:
                break
        return Found(tuple(entries[:most]), unread, len(entries) > most or bool(cursor))

    async def find(self, name: str) -> Entry | None:
        """Return the latest version of the server with exactly this name; None without one.  Raises `RegistryError`."""
        if not self._wish.is_url:
            found = latest_of(entry for entry in self._file().entries if entry.server.name == name)
            return found[0] if found else None
        body = await self._get(f"/servers/{quote(name, safe='')}/versions/latest")
        if body is None:
            return None
        try:
            entry = read_entry(body)
        except RegistryFormatError as error:
            raise self._unusable(str(error)) from None
        if entry.server.name != name:
            raise self._unusable("it describes another server than the one that was asked for")
        return entry

    async def _page(self, word: str, cursor: str) -> Page:
        if not self._wish.is_url:
            page = self._file()
            return Page(tuple(entry for entry in page.entries if matches(entry.server, word)), page.unread)
        query = {"search": word, "version": "latest", "limit": str(PAGE_ENTRIES)}
        body = await self._get(f"/servers?{urlencode(query | ({'cursor': cursor} if cursor else {}))}")
        if body is None:
            raise self._unusable("it has no list of servers there")
        try:
            return read_page(body)
        except RegistryFormatError as error:
            raise self._unusable(str(error)) from None

    async def _get(self, path: str) -> bytes | None:
        """Return the body of an answer; None for the registry's own 404."""
        base = self._wish.address.rstrip("/")
        url = f"{base}{'' if _VERSIONED.search(base) else _API}{path}"
        try:
            fetched = await self._fetcher.fetch(url, MAX_ANSWER_BYTES, 0, lambda *_: None)
        except FetchRefusedError as error:
            raise RegistryError(
                f"the registry {self.shown} leads to {error.spot}, which may not be reached: {error.refused}",
                "name the registry by its last address",
            ) from None
        except FetchError as error:
            reason = str(error).removeprefix("Nothing was fetched: ").rstrip(".")
            raise RegistryError(
                f"the registry {self.shown} cannot be asked: {reason}",
                "look whether this machine reaches it; a file in its place needs no network: --registry FILE",
            ) from None
        return self._body_of(fetched)

    def _body_of(self, fetched: Fetched) -> bytes | None:
        mark = fetched.body.lstrip()[:1]
        if fetched.status == 404 and mark == b"{":
            return None
        if fetched.status == 429:
            raise RegistryError(f"the registry {self.shown} has been asked too often", "wait a minute, then try again")
        if fetched.status >= 500:
            raise RegistryError(
                f"the registry {self.shown} is out of order: it answers {fetched.status}",
                "try again later, or name another: --registry URL",
            )
        if fetched.is_cut:
            raise self._unusable(f"its answer is larger than {MAX_ANSWER_BYTES:,} bytes")
        if fetched.trouble:
            raise self._unusable(f"its answer did not come whole: {fetched.trouble}")
        if fetched.status != 200:
            raise self._unusable(f"it answers {fetched.status}")
        if not fetched.body.strip():
            raise self._unusable("its answer is empty")
        if mark not in (b"{", b"["):  # which JSON it is, whoever reads it says
            is_page = "html" in fetched.media.type or mark == b"<"
            raise self._unusable("a web page answers in its place" if is_page else "its answer is no JSON")
        return fetched.body

    def _file(self) -> Page:
        path = Path(self._wish.address)
        remedy = "name a file with a registry's answer in it: --registry FILE"
        try:
            return read_file(read_text(path, MAX_FILE_BYTES).text.encode())
        except MissingFileError:
            raise RegistryError(f"there is no file {path} in place of a registry", remedy) from None
        except (TextFileError, RegistryFormatError) as error:
            raise RegistryError(f"{path} is no registry: {error}", remedy) from None

    def _unusable(self, reason: str) -> RegistryError:
        return RegistryError(
            f"the registry {self.shown} cannot be used: {reason}",
            "check its address: the key registry of your configuration, or --registry",
        )


def _fetcher(wish: RegistryWish) -> Fetcher:
    """Return a fetcher that may reach the host that the user named, wherever that is, and the internet."""
    parts = urlsplit(wish.address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = parts.hostname or ""
    allow = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}",) if wish.is_url else ()
    return Fetcher(FetchPolicy(allow=allow, proxy=wish.proxy), deadlines=DEADLINES)
