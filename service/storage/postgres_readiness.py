"""A trial of what every writer on Postgres needs: its locks, and room for a small batch.

An update of one short row would succeed on a full disk: it fits into pages that are there. So the
trial writes as much as a small batch, in a form that Postgres cannot compress, and commits it to
the write-ahead log; the row is gone at the end of the same transaction, so that trials of several
servers never wait for each other.
"""

import base64
import os
import time
import uuid

from service.storage.statements import Statements

N_BYTES = 49_152
"""Random bytes of a trial: 64 KiB of text, or 33 chunks of a long value."""
EVERY_S = 1.0
"""Time for which a trial that succeeded stands, seconds."""

LOCK = """
LOCK TABLE pages, page_states, hosts, observations, crawls, lanes, epochs IN ROW EXCLUSIVE MODE
"""
"""Takes the lock of every writer, which an operator's LOCK TABLE or a migration keeps out."""
INSERT = "INSERT INTO meta (name, value) VALUES (%(name)s, %(value)s)"
DELETE = "DELETE FROM meta WHERE name = %(name)s"


class Trial:
    """The last trial of one process."""

    def __init__(self) -> None:
        self.succeeded_at = -EVERY_S

    def run(self, statements: Statements) -> None:
        """Write and commit, at most once a second; raises what the driver does."""
        if time.monotonic() - self.succeeded_at < EVERY_S:
            return
        name = f"trial {uuid.uuid4()}"
        value = base64.b64encode(os.urandom(N_BYTES)).decode()
        statements.later(INSERT, {"name": name, "value": value})
        statements.later(DELETE, {"name": name})
        statements.run(LOCK, {}, kept=False)
        statements.commit()
        self.succeeded_at = time.monotonic()
