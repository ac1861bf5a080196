"""A site whose pages link to each other, and that sees two requests for one page at a time."""

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from email.message import Message

from typing_extensions import override

from support.local_site import Answer, LocalSite, page

N_PAGES = 12
ROBOTS = "User-agent: *\nDisallow: /private\n"
PAUSE_S = 0.1
"""Time of an answer, seconds, so that a crawler is killed within one."""


def linked(n: int = N_PAGES) -> dict[str, Answer]:
    """Return pages that form a tree: page k links to 2k + 1 and 2k + 2, the first to more."""
    more = '<a href="/old">old</a> <a href="/private">private</a> <a href="/gone">gone</a>'
    pages = {"/robots.txt": (200, {"Content-Type": "text/plain"}, ROBOTS.encode())}
    for k in range(n):
        links = [f'<a href="/{m}">{m}</a>' for m in (2 * k + 1, 2 * k + 2) if m < n]
        pages[f"/{k}"] = page(f"<title>{k}</title>{more if k == 0 else ''}{' '.join(links)}")
    pages["/old"] = (301, {"Location": "/1"}, b"")
    pages["/private"] = page("never")
    return pages


@dataclass
class WatchedSite(LocalSite):
    """A site that takes its time, and notes pages that two crawlers fetch at once."""

    twice: list[str] = field(default_factory=list)
    at_once: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    pause_s: float = PAUSE_S

    @override
    def answer(self, path: str, headers: Message) -> Answer:
        with self.lock:
            self.at_once[path] += 1
            if self.at_once[path] > 1 and path != "/robots.txt":
                self.twice.append(path)
        time.sleep(self.pause_s)
        with self.lock:
            self.at_once[path] -= 1
        return super().answer(path, headers)
