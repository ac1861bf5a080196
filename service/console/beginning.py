"""The first steps of a service: what is done, and the line that does the next one."""

from typing import NamedTuple

from recrawl_client.wire.status import StatusAnswer
from service.console.visit import Visit

PAGE = "https://example.com/"


class Step(NamedTuple):
    """A step of the beginning."""

    title: str
    is_done: bool
    words: str
    command: str = ""
    """Command that does the step; empty: it comes by itself."""


def steps(visit: Visit, state: StatusAnswer) -> list[Step]:
    """Return the steps until the first report; an empty list after it."""
    has_pages = bool(state.n_pages or state.n_gone)
    if has_pages and state.n_never_crawled != state.n_pages:
        return []
    now = f"{visit.now:%Y-%m-%dT%H:%M:%SZ}"
    report = f'{{"url": "{PAGE}", "observed_at": "{now}", "digest": "a1"}}'
    return [
        Step(
            "Register pages",
            has_pages,
            "For a list of URLs, run recrawl import urls.txt.",
            visit.curl("/pages", f'[{{"url": "{PAGE}"}}]'),
        ),
        Step(
            "The first epoch",
            state.epoch.epoch is not None,
            "It plans the crawls, and comes by itself a second after the first page.",
        ),
        Step(
            "Take crawls",
            state.leases_asked_at is not None or state.n_leases > 0,
            "A crawler leases the pages that are due.",
            visit.curl("/leases", '{"worker": "first", "count": 10}'),
        ),
        Step(
            "Report them",
            False,
            "Each report teaches how often the page changes. The charts begin then.",
            visit.curl("/observations", f"[{report}]"),
        ),
    ]
