"""Documents as `recrawl watch` read them last, in a small SQLite file.

A document's row is written in one transaction once the service has accepted the document. The row
has its validators, its children and its addresses, compressed. Addresses that a document does not
name any more wait in `left_urls` until the service has been asked to crawl them.
"""

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from service.model.errors import UnreadableFile

VERSION = 1
MOST_LEFT = 100_000
"""Maximum number of addresses that wait; further ones are dropped."""
KEPT_S = 90 * 86_400.0
"""Time for which a document that nobody names any more is kept, seconds."""
TABLES = """
CREATE TABLE meta (receiver TEXT NOT NULL);
CREATE TABLE documents (
    url TEXT PRIMARY KEY, kind TEXT NOT NULL, etag TEXT NOT NULL, last_modified TEXT NOT NULL,
    scope TEXT NOT NULL, children BLOB NOT NULL, urls BLOB, lastmod REAL, read_at REAL NOT NULL,
    seen_at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE feeds (
    url TEXT PRIMARY KEY, min_crawl_rate REAL, max_crawl_rate REAL, hub TEXT NOT NULL,
    importance REAL NOT NULL, entries REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE left_urls (url TEXT PRIMARY KEY) WITHOUT ROWID;
"""
SAVE = """
INSERT INTO documents (url, kind, etag, last_modified, scope, children, urls, lastmod, read_at,
    seen_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9)
ON CONFLICT (url) DO UPDATE SET kind = ?2, etag = ?3, last_modified = ?4, scope = ?5,
    children = ?6, urls = coalesce(?7, urls), lastmod = ?8, read_at = ?9, seen_at = ?9
"""
READ = """
SELECT kind, etag, last_modified, scope, children, lastmod, read_at FROM documents WHERE url = ?
"""


class Child(NamedTuple):
    """A document that another one names."""

    url: str
    lastmod: float | None
    """Instant of its last change, seconds since 1970; None: not stated."""


class Document(NamedTuple):
    """A document at its last read."""

    kind: str
    etag: str = ""
    last_modified: str = ""
    scope: str = ""
    """Options on other hosts under which it was read."""
    children: tuple[Child, ...] = ()
    lastmod: float | None = None
    """Instant that its index stated before that read; None: not stated, or the read broke off."""
    read_at: float = 0.0
    """Instant of the read, seconds since 1970."""


class FeedSettings(NamedTuple):
    """Settings of a feed that this command has sent, and its new entries."""

    min_crawl_rate: float | None = None
    max_crawl_rate: float | None = None
    hub: str = ""
    """Hub at which the command has subscribed; empty: none."""
    importance: float = 1.0
    entries: float = 0.0
    """Mean number of new entries of a read."""


class WatchState:
    """Rows of documents and feeds, for one receiver; in a read-only folder only in memory."""

    def __init__(self, path: Path, receiver: str) -> None:
        self.receiver = receiver
        try:
            self._open(str(path))
        except sqlite3.OperationalError:  # the folder is read-only, or is not there
            self._open(":memory:")
        except sqlite3.DatabaseError as error:
            raise UnreadableFile(
                f"{path} is no state of recrawl watch; remove or rename it"
            ) from error

    def _open(self, path: str) -> None:
        self.db = sqlite3.connect(path, timeout=30, isolation_level=None)
        (version,) = self.db.execute("PRAGMA user_version").fetchone()
        tables = self.db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables and version != VERSION:
            raise sqlite3.DatabaseError("another version")
        with self._transaction():
            if not tables:
                for statement in filter(str.strip, TABLES.split(";")):
                    self.db.execute(statement)
                self.db.execute(f"PRAGMA user_version = {VERSION}")
                self.db.execute("INSERT INTO meta VALUES (?)", (self.receiver,))
            elif self._receiver()[0] != self.receiver:
                self._forget(self.receiver)

    def recognise(self, incarnation: str) -> bool:
        """Forget all if the receiver's database was restored; return whether it was.

        The database may lack pages of documents that it accepted after its backup.
        """
        with self._transaction():
            _, before = self._receiver()
            if before == incarnation:
                return False
            named = f"{self.receiver} {incarnation}"
            if before:
                self._forget(named)
            else:  # the rows are of a command or a service that did not know it
                self.db.execute("UPDATE meta SET receiver = ?", (named,))
        return bool(before)

    def _receiver(self) -> tuple[str, str]:
        """Return the receiver of the rows, and the name of its incarnation; "": not known."""
        (receiver,) = self.db.execute("SELECT receiver FROM meta").fetchone()
        address, _, incarnation = receiver.partition(" ")
        return address, incarnation

    def _forget(self, receiver: str) -> None:
        for table in ("documents", "feeds", "left_urls"):
            self.db.execute(f"DELETE FROM {table}")
        self.db.execute("UPDATE meta SET receiver = ?", (receiver,))

    def close(self) -> None:
        """Close the file."""
        self.db.close()

    def _transaction(self) -> "_Transaction":
        return _Transaction(self.db)

    # -- documents

    def document(self, url: str) -> Document | None:
        """Return a document at its last read; None if it was never read."""
        row = self.db.execute(READ, (url,)).fetchone()
        if row is None:
            return None
        kind, etag, last_modified, scope, children, lastmod, read_at = row
        named = tuple(Child(url, at) for url, at in json.loads(_inflated(children) or "[]"))
        return Document(kind, etag, last_modified, scope, named, lastmod, read_at)

    def remember(self, url: str, document: Document, urls: Iterable[str] | None = None) -> None:
        """Replace a document's row; note the addresses that it does not name any more.

        Without `urls`, its addresses stay those of the read before.
        """
        children = _deflated(json.dumps(document.children))
        with self._transaction():
            packed = None
            if urls is not None:
                now = set(urls)
                packed = _deflated("\n".join(sorted(now)))
                self._note_left(self._urls(url) - now)
            kind, etag, last_modified, scope, _, lastmod, read_at = document
            row = (url, kind, etag, last_modified, scope, children, packed, lastmod, read_at)
            self.db.execute(SAVE, row)

    def see(self, url: str, now: float) -> None:
        """Note that a document is still named."""
        self.db.execute("UPDATE documents SET seen_at = ? WHERE url = ?", (now, url))

    def forget_old(self, now: float) -> None:
        """Drop the documents that nobody names any more."""
        self.db.execute("DELETE FROM documents WHERE seen_at < ?", (now - KEPT_S,))

    def _urls(self, url: str) -> set[str]:
        row = self.db.execute("SELECT urls FROM documents WHERE url = ?", (url,)).fetchone()
        return set(_lines(row[0])) if row else set()

    def _note_left(self, left: set[str]) -> None:
        (waiting,) = self.db.execute("SELECT count(*) FROM left_urls").fetchone()
        some = sorted(left)[: max(MOST_LEFT - waiting, 0)]
        self.db.executemany("INSERT OR IGNORE INTO left_urls VALUES (?)", [(u,) for u in some])

    # -- addresses that have left

    def left(self, since: float, limit: int) -> list[str]:
        """Return at most `limit` addresses that no document seen since an instant names.

        Addresses that a document names after all wait no more.
        """
        left = {url for (url,) in self.db.execute("SELECT url FROM left_urls")}
        if not left:
            return []
        rows = self.db.execute(
            "SELECT urls FROM documents WHERE seen_at >= ? AND urls IS NOT NULL", (since,)
        )
        named = set[str]()
        for (urls,) in rows:
            named |= left.intersection(_lines(urls))
        self.forget_left(named)
        return sorted(left - named)[:limit]

    def forget_left(self, urls: Iterable[str]) -> None:
        """Drop addresses that wait no more."""
        with self._transaction():
            self.db.executemany("DELETE FROM left_urls WHERE url = ?", [(url,) for url in urls])

    # -- feeds

    def has_feed(self, url: str) -> bool:
        """Return whether the service reads an address as a feed."""
        return self.db.execute("SELECT 1 FROM feeds WHERE url = ?", (url,)).fetchone() is not None

    def feed(self, url: str) -> FeedSettings:
        """Return the settings that were sent for a feed."""
        row = self.db.execute(
            f"SELECT {', '.join(FeedSettings._fields)} FROM feeds WHERE url = ?", (url,)
        ).fetchone()
        return FeedSettings() if row is None else FeedSettings(*row)

    def sum_of_minima(self) -> float:
        """Return the sum of the minimum rates of all feeds, 1/day."""
        (total,) = self.db.execute("SELECT total(min_crawl_rate) FROM feeds").fetchone()
        return float(total)

    def remember_feed(self, url: str, settings: FeedSettings) -> None:
        """Replace the settings that were sent for a feed."""
        self.db.execute("INSERT OR REPLACE INTO feeds VALUES (?, ?, ?, ?, ?, ?)", (url, *settings))


class _Transaction:
    """A transaction that locks the file at once, so that two commands take turns."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    def __enter__(self) -> None:
        self.db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, *_: object) -> None:
        self.db.execute("COMMIT" if kind is None else "ROLLBACK")


def _deflated(text: str) -> bytes:
    return zlib.compress(text.encode("utf-8", "surrogatepass"), 6)


def _inflated(packed: bytes | None) -> str:
    return zlib.decompress(packed).decode("utf-8", "surrogatepass") if packed else ""


def _lines(packed: bytes | None) -> Iterator[str]:
    return filter(None, _inflated(packed).split("\n"))
