"""The tools: what each asks the service, and what it answers in few words."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from recrawl_client import AsyncClient, Copy
from service.agents import questions
from service.agents.questions import Question
from service.model.moments import moment_of
from service.model.words import counted

MOST_ANSWER = 20_000
"""Maximum length of an answer, characters."""
DIGITS = 4
"""Significant digits of numbers."""
MULTIPLES = (0.5, 1.0, 2.0)
"""Default budgets of `plan`, in multiples of the one in force."""
LEAST_BUDGET = 1e-9
N_BUSIEST, N_CRAWLS = 3, 5
"""Number of hosts and tags of a plan, and of crawls of a page."""

Answer = dict[str, Any]


class Tool(NamedTuple):
    """A tool as agents see it."""

    name: str
    title: str
    description: str
    question: type[Question]
    answer: Callable[[AsyncClient, Any], Awaitable[Answer]]
    writes: bool = False


async def freshness(client: AsyncClient, question: questions.FreshnessQuestion) -> Answer:
    """Return a verdict for the copy of each URL."""
    fetched_at = _moment(question.fetched_at, client)
    copies = [
        Copy(
            url=url,
            max_stale=question.max_stale,
            fetched_at=msgspec.UNSET if fetched_at is None else fetched_at,
        )
        for url in question.urls
    ]
    answer = await client.freshness(copies)
    faults = {rejection.index: rejection.detail for rejection in answer.rejected}
    verdicts = [
        {"url": url, "error": faults[i]}
        if verdict is None
        else {"url": url, "registered": verdict.page_id is not None, **answer_of(verdict)}
        for i, (url, verdict) in enumerate(zip(question.urls, answer.verdicts, strict=True))
    ]
    return {"at": answer.at, "n_fetch": answer.n_fetch, "copies": verdicts}


async def page(client: AsyncClient, question: questions.PageQuestion) -> Answer:
    """Return a page: why it is crawled when it is, and what its crawls have shown."""
    shown = answer_of(await client.page(question.url))
    why, estimate = shown["why"], shown["estimate"]
    crawls = shown.get("last_crawls", [])[:N_CRAWLS]
    names = (
        *("page_id", "url", "importance", "tags", "kind", "gone", "no_content", "retired"),
        *("n_failures", "redirects_to", "last_crawl_at", "unfinished"),
    )
    return {
        "why": why.pop("sentence"),
        **{name: shown[name] for name in names if name in shown},
        "hold": why,
        "change_rate_per_day": estimate["change_rate"],
        "change_rate_is_assumed": estimate["assumed"],
        "n_intervals": estimate["n_observations"],
        "n_changes": estimate["n_changes"],
        "schedule": shown.get("schedule"),
        "last_crawls": crawls,
    }


async def changes(client: AsyncClient, question: questions.ChangesQuestion) -> Answer:
    """Return a part of the feed of changes."""
    filters = {
        "since": _moment(question.since, client),
        "host": question.host,
        "prefix": question.url_prefix,
        "tag": question.tag,
        "kinds": question.kinds,
    }
    chosen: Any = {name: value for name, value in filters.items() if value is not None}

    async def part(limit: int) -> Answer:
        feed = await client.changes(question.cursor, limit=limit, **chosen)
        return {"items": [], **answer_of(feed)}

    return await _fitting(part, question.limit)


async def plan(client: AsyncClient, question: questions.PlanQuestion) -> Answer:
    """Return the plans of budgets, beside the one in force."""
    budgets: Sequence[float] = question.budgets or ()
    if not budgets:
        present = (await client.epoch()).bandwidth or LEAST_BUDGET
        budgets = [max(present * multiple, LEAST_BUDGET) for multiple in MULTIPLES]
    answer = answer_of(await client.plan(*budgets, limit=N_BUSIEST))
    return {**answer, "budgets_are_in": f"{answer['unit']} a day"}


async def recrawl(client: AsyncClient, question: questions.RecrawlQuestion) -> Answer:
    """Request crawls of pages as soon as politeness and the budget allow."""
    answer = await client.recrawl(*question.urls, dry_run=question.dry_run)
    refused = [
        {"url": question.urls[each.index], "reason": each.detail} for each in answer.rejected
    ]
    verb = "would be" if question.dry_run else "are"
    n_urls = len(question.urls)
    return {
        "result": f"{n_urls - answer.n_rejected} of {counted(n_urls, 'page')} {verb} crawled as "
        "soon as politeness and the budget allow; `page` shows when",
        "dry_run": answer.dry_run,
        "changed": answer.changed,
        "not_requested": refused,
    }


async def hosts(client: AsyncClient, question: questions.HostsQuestion) -> Answer:
    """Return one host, or a part of the list of hosts."""
    if question.host is not None:
        return answer_of(await client.host(question.host))

    async def part(limit: int) -> Answer:
        listed = await client.hosts_part(
            question.cursor, sort=question.sort, blocked=question.blocked, limit=limit
        )
        return {"items": [], **answer_of(listed)}

    return await _fitting(part, question.limit)


TOOLS = (
    Tool(
        "freshness",
        "Are my copies still right?",
        "Judge copies of web pages: for each URL the probability `stale` that the page has changed "
        "since the copy was fetched, and `fetch`: whether to fetch it again. Ask this before you "
        "rely on stored text or fetch pages again. Without fetched_at, the copy is that of the "
        "page's last crawl. A URL with registered=false is unknown to the scheduler and judged "
        "like a new page. Pages in the state gone, moved or refused have fetch=false, because a "
        "fetch would bring nothing.",
        questions.FreshnessQuestion,
        freshness,
    ),
    Tool(
        "page",
        "One page, and why",
        "Show one page: `why` is the reason, in a sentence, why it is or is not crawled now, with "
        "its next crawl, its learnt change rate and its last crawls. Ask this when somebody "
        "wonders why a page is stale or when it is crawled next.",
        questions.PageQuestion,
        page,
    ),
    Tool(
        "changes",
        "What has changed",
        "List changes of pages, oldest first: new, changed, gone, back, moved, deleted. "
        "Begin with since; while `more` is true, call again with the same filters and the "
        "next_cursor of the answer. Fewer items than limit do not mean the end. Keep next_cursor "
        "to go on later without missing a change.",
        questions.ChangesQuestion,
        changes,
    ),
    Tool(
        "plan",
        "What another budget would bring",
        "Compare crawl budgets before anybody pays for them: for each, the expected share of fresh "
        "pages and the hosts and tags that get the most crawls. Nothing is changed.",
        questions.PlanQuestion,
        plan,
    ),
    Tool(
        "recrawl",
        "Crawl pages soon",
        "Request crawls of registered pages as soon as politeness and the budget allow. It needs a "
        "key of the role admin. Use it for few pages that matter now; the schedule cares for the "
        "others. The answer comes before the crawls: ask `page` or `changes` later.",
        questions.RecrawlQuestion,
        recrawl,
        writes=True,
    ),
    Tool(
        "hosts",
        "Hosts and what holds them",
        "List hosts with their queue, pauses and load, or show one host. blocked=true lists those "
        "that are paused now, by an operator (blocked_until) or by the site (paused_until). For "
        "the next part, call again with the same sort and next_cursor.",
        questions.HostsQuestion,
        hosts,
    ),
)
"""All tools, by their order in the list that agents see."""


async def _fitting(part: Callable[[int], Awaitable[Answer]], limit: int) -> Answer:
    """Return the longest part whose text is short enough, so that its cursor misses nothing."""
    while len(text(answer := await part(limit))) > MOST_ANSWER and limit > 1:
        limit //= 2
    return answer


def _moment(written: str | None, client: AsyncClient) -> datetime | None:
    return None if written is None else moment_of(written, client.now())


def text(answer: Answer) -> str:
    """Return an answer as compact JSON."""
    return msgspec.json.encode(answer).decode()


def answer_of(value: msgspec.Struct) -> Answer:
    """Return an answer of the service in few words."""
    answer: Answer = plain(msgspec.to_builtins(value))
    return answer


def plain(value: Any) -> Any:
    """Return JSON values without nulls and empty lists, with short numbers.

    >>> plain({"rate": 0.123456, "note": None, "tags": [], "n": 1234567})
    {'rate': 0.1235, 'n': 1234567}
    """
    if isinstance(value, dict):
        items = ((name, plain(each)) for name, each in value.items())
        return {name: each for name, each in items if each is not None and each != []}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
