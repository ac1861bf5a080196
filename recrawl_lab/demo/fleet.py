"""A fleet of crawlers, a client that knows the simulated web and the service's API only."""

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import httpx
import numpy as np

from recrawl_lab.replay.playing import Due
from recrawl_lab.replay.staleness import Crawls
from recrawl_lab.worlds.simulated_time import day_of, instant_of
from recrawl_lab.worlds.world import World
from service.model.arrays import Bools, Ints
from service.model.errors import UnexpectedAnswer

MAX_ITEMS = 10_000
EPOCH_TIMEOUT_S = 60.0
POLL_S = 0.004
HISTORY_STEP = timedelta(minutes=10)


class Fleet:
    """Crawler of a world that reports to the service; pages are numbered as in the world."""

    def __init__(self, client: httpx.Client, world: World) -> None:
        self.client = client
        self.world = world
        self._page_id = np.zeros(len(world), np.int64)
        self._page: dict[int, int] = {}

    def discover(self, pages: Ints) -> None:
        """Register pages and report their first crawl, at the instant of their creation."""
        observability = np.where(self.world.announced, "complete", "incomplete").tolist()
        items = [
            {
                "url": self.world.url[page],
                "importance": float(self.world.importance[page]),
                "observability": observability[page],
            }
            for page in pages.tolist()
        ]
        answers = self._post("/pages", items)
        for page, page_id in zip(pages.tolist(), _all(answers, "page_ids"), strict=True):
            twin = self._page.setdefault(page_id, page)
            if twin != page:
                raise UnexpectedAnswer(
                    f"{self.world.url[twin]} and {self.world.url[page]} are one page in Recrawl; "
                    "keep one of the URLs in the world"
                )
            self._page_id[page] = page_id
        crawls = Crawls(pages, self.world.created[pages])
        self.report(crawls, np.zeros(len(pages), np.bool_))

    def crawl(self, crawls: Crawls) -> Crawls:
        """Crawl in the order of time and report; return the crawls that took place.

        A crawl that finds a page gone reports it; the page is not crawled again.
        """
        order = np.argsort(crawls.at, kind="stable")
        page, at = crawls.page[order], crawls.at[order]
        gone = self.world.gone(page, at)
        first_gone = np.flatnonzero(gone)[np.unique(page[gone], return_index=True)[1]]
        done = ~gone
        done[first_gone] = True
        self.report(Crawls(page[done], at[done]), gone[done])
        for lost in page[first_gone].tolist():
            expect(self.client.delete(f"/pages/{self._page_id[lost]}"), 204)
        return Crawls(page[done], at[done])

    def report(self, crawls: Crawls, gone: Bools) -> None:
        """Report the results of crawls: a digest of the content, or that the page is gone."""
        items = [
            {
                "page_id": int(self._page_id[page]),
                "observed_at": instant_of(at).isoformat(),
                **({"status": 404} if lost else {"digest": self._digest(page, at)}),
            }
            for page, at, lost in zip(
                crawls.page.tolist(), crawls.at.tolist(), gone.tolist(), strict=True
            )
        ]
        for answer in self._post("/observations", items):
            if answer["late"] or answer["duplicate"]:
                raise UnexpectedAnswer(f"POST /observations did not accept every crawl: {answer}")

    def _digest(self, page: int, at: float) -> str:
        # two pages have two contents, whatever the numbers of their versions
        return f"{page} v{self.world.version(page, at)}"

    def announce(self, changes: Crawls) -> Crawls:
        """Send change notices; return the crawls that the service requests, with their instants."""
        items = [
            {"page_id": int(self._page_id[page]), "changed_at": instant_of(at).isoformat()}
            for page, at in zip(changes.page.tolist(), changes.at.tolist(), strict=True)
        ]
        wanted = [
            first + decision["index"]
            for first, answer in zip(
                range(0, len(items), MAX_ITEMS), self._post("/pings", items), strict=True
            )
            for decision in answer["decisions"]
            if decision["crawl"]
        ]
        return Crawls(changes.page[wanted], changes.at[wanted])

    def new_epoch(self) -> dict[str, Any]:
        """Request an epoch and return it when its schedule is in force."""
        epoch = expect(self.client.post("/epochs"), 202).json()
        give_up = time.monotonic() + EPOCH_TIMEOUT_S
        while epoch["status"] in {"requested", "running"}:
            if time.monotonic() > give_up:
                raise UnexpectedAnswer(
                    f"epoch {epoch['epoch']} is still {epoch['status']} after "
                    f"{EPOCH_TIMEOUT_S:.0f} s; is a worker running?"
                )
            time.sleep(POLL_S)
            epoch = expect(self.client.get(f"/epochs/{epoch['epoch']}"), 200).json()
        if epoch["status"] != "published":
            raise UnexpectedAnswer(f"epoch {epoch['epoch']} failed: {epoch['reason']}")
        self._wait_for_history(epoch["requested_at"], give_up)
        certificate: dict[str, Any] = epoch
        return certificate

    def _wait_for_history(self, now: str, give_up: float) -> None:
        """Wait until the service has measured the last step of its history.

        Otherwise the simulated clock moves on during the measurement.
        """
        since = (datetime.fromisoformat(now) - HISTORY_STEP).isoformat()
        step: dict[str, str | int] = {"since": since, "step_s": 600}
        while not any(
            row["measured_at"]
            for row in expect(self.client.get("/history", params=step), 200).json()["items"]
        ):
            if time.monotonic() > give_up:
                raise UnexpectedAnswer(
                    f"the history has no row from {since} on after "
                    f"{EPOCH_TIMEOUT_S:.0f} s; is a worker running?"
                )
            time.sleep(POLL_S)

    def step(self, usual: float) -> float:
        """Return the usual time: each step waits for an epoch of the service."""
        return usual

    def due(self, before: float) -> Due:
        """Return the pages in the schedule that are due before a day."""
        request = {"due_before": instant_of(before).isoformat()}
        headers = {"Accept": "application/x-ndjson"}
        answer = expect(self.client.get("/schedule", params=request, headers=headers), 200)
        rows = [json.loads(line) for line in answer.text.splitlines()]
        return Due(
            np.array([self._page[row["page_id"]] for row in rows], np.int64),
            np.array([day_of(datetime.fromisoformat(row["next_crawl_at"])) for row in rows]),
            np.array([row["crawl_rate"] for row in rows], np.float64),
        )

    def _post(self, path: str, items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Send items in batches; raise `UnexpectedAnswer` if one of them is rejected."""
        for first in range(0, len(items), MAX_ITEMS):
            batch = items[first : first + MAX_ITEMS]
            answer = expect(self.client.post(path, json=batch), 200).json()
            if answer["rejected"]:
                raise UnexpectedAnswer(f"POST {path} rejected items: {answer['rejected'][:3]}")
            yield answer


def expect(response: httpx.Response, status: int) -> httpx.Response:
    """Return the response if it has this status; raise `UnexpectedAnswer` otherwise."""
    if response.status_code != status:
        request = f"{response.request.method} {response.request.url.path}"
        raise UnexpectedAnswer(
            f"{request} answered {response.status_code} instead of {status}: {response.text[:500]}"
        )
    return response


def _all(answers: Iterator[dict[str, Any]], name: str) -> list[Any]:
    return [value for answer in answers for value in answer[name]]
