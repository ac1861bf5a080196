"""Readers of the feed of changes: a follower with a cursor, and a receiver of webhooks.

Each keeps what it has handled before it goes on: the follower in its cursor's file, the receiver by
its answer. Both may be killed at any instant; their successors go on.
"""

import base64
import hmac
import json
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.faults.clients import Client, Task
from benchmarks.faults.history import Change, Followed, Received

UNIX_ZERO = datetime(1970, 1, 1, tzinfo=UTC)
PLACE = "follower.place"
"""File with the cursor, in the folder of the campaign."""
KEY = b"a key of the campaign, 32 bytes."
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"
MOST_ITEMS = 200
"""Maximum changes of one request to the receiver."""


def change(item: dict[str, Any]) -> Change:
    """Return the page and the instants of a change of the feed."""
    observed_at, recorded_at = map(microseconds, (item["observed_at"], item["recorded_at"]))
    return Change(item["page_id"], observed_at, recorded_at)


def microseconds(text: str) -> int:
    """Return an instant as µs since 1970."""
    return (datetime.fromisoformat(text) - UNIX_ZERO) // timedelta(microseconds=1)


def follow(client: Client) -> None:
    """Read the next part of the feed, write it to the history, then keep the cursor."""
    place = client.folder / PLACE
    cursor = f"&cursor={place.read_text()}" if place.exists() else ""
    answer = client.caller.call("GET", f"/changes?limit=500&wait_s=1{cursor}")
    if answer is None or answer[0] != 200:
        time.sleep(0.1)
        return
    part = json.loads(answer[2])
    items = [change(item) for item in part["items"]]
    client.book.write(Followed(**client.stamp(), items=items, wall=time.time()))
    new = place.with_suffix(".new")
    new.write_text(part["next_cursor"])
    new.replace(place)


def receive(task: Task) -> None:
    """Receive webhooks until the process ends."""
    client = Client(task)

    class Receiver(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            content = self.rfile.read(length)
            if len(content) < length:  # the sender was killed
                return
            events = json.loads(content)
            items = [change(event["data"]) for event in events]
            line = Received(
                **client.stamp(),
                items=items,
                wall=time.time(),
                delivery=self.headers["webhook-id"],
                signed=signed(dict(self.headers), content),
            )
            client.book.write(line)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Write nothing."""

    ThreadingHTTPServer(("127.0.0.1", task.hook_port), Receiver).serve_forever()


def signed(headers: dict[str, str], content: bytes) -> bool:
    """Return whether a request has the signature of the campaign's secret."""
    named = {name.lower(): value for name, value in headers.items()}
    text = f"{named['webhook-id']}.{named['webhook-timestamp']}.".encode() + content
    expected = base64.b64encode(hmac.digest(KEY, text, "sha256")).decode()
    return f"v1,{expected}" in named["webhook-signature"].split()


def webhook(port: int) -> dict[str, Any]:
    """Return the body that creates the campaign's webhook."""
    return {"url": f"http://127.0.0.1:{port}/", "secret": SECRET, "max_items": MOST_ITEMS}


def delete_place(folder: Path) -> None:
    """Forget the cursor of another campaign."""
    (folder / PLACE).unlink(missing_ok=True)
