"""Shares of fresh copies, and pages without one: what is known, and in which words. Pure.

A page without a copy is not fresh. A share that change rates lead to expect is known once at least
one page has evidence: before, all rates are assumed, and so would be the share.
"""

from service.model.amounts import typical_cost
from service.model.words import counted, number

NO_COPY = "no page has a copy yet"
NO_EVIDENCE = "not known before a page is crawled a second time"


def expected_share(fresh: float, of: float, n_known: float) -> float | None:
    """Return a share or mean that change rates lead to expect; None if none of them has evidence.

    `n_known` is the number of pages with evidence.

    >>> expected_share(45.0, 50.0, n_known=1), expected_share(45.0, 50.0, n_known=0)
    (0.9, None)
    """
    return fresh / of if of and n_known else None


def without_share(n_pages: int, n_never_crawled: int) -> str:
    """Return why no share of fresh copies is known."""
    return NO_COPY if n_never_crawled == n_pages else NO_EVIDENCE


def with_assumed(share: str, n_pages: int, n_assumed: int | None) -> str:
    """Return a share in words, and how many of the pages have assumed change rates.

    >>> with_assumed("90 % of pages", 200, 199)
    '90 % of pages; the change rates of 199 of 200 pages are assumed'
    >>> with_assumed("90 % of pages", 200, 0)
    '90 % of pages'
    """
    if not n_assumed:
        return share
    return f"{share}; the change rates of {n_assumed:,} of {counted(n_pages, 'page')} are assumed"


def never_crawled(n: int, n_stopped: int | None) -> str:
    """Return how many pages were never crawled, and how many of them are stopped.

    >>> never_crawled(12, 0), never_crawled(12, 5), never_crawled(5, 5)
    ('12 never crawled', '12 never crawled (5 of them stopped)', '5 never crawled (all stopped)')
    """
    words = f"{n:,} never crawled"
    if not n_stopped:
        return words
    return (
        f"{words} (all stopped)" if n_stopped == n else f"{words} ({n_stopped:,} of them stopped)"
    )


def ground_of_plan(n_pages: int, n_copies: int, n_assumed: int) -> str:
    """Return what the freshness of a plan rests on; empty if all pages have copies and evidence.

    >>> ground_of_plan(200, 0, 200)
    'no page has a copy yet, so the whole budget is for first crawls'
    >>> ground_of_plan(200, 150, 60)
    '50 of 200 pages have no copy and are not fresh; the change rates of 60 are assumed'
    """
    if not n_copies:
        return f"{NO_COPY}, so the whole budget is for first crawls" if n_pages else ""
    texts = []
    if n_copies < n_pages:
        missing = n_pages - n_copies
        verbs = "has no copy and is" if missing == 1 else "have no copy and are"
        texts.append(f"{missing:,} of {counted(n_pages, 'page')} {verbs} not fresh")
    if n_assumed == n_pages:
        texts.append(f"freshness is {NO_EVIDENCE}")
    elif n_assumed:
        texts.append(f"the change rates of {n_assumed:,} are assumed")
    return "; ".join(texts)


def ground_of_costs(n_pages: int, n_assumed_costs: int | None, unit: str) -> str:
    """Return that a plan rests on assumed costs; empty if it does not.

    >>> ground_of_costs(200, 150, "bytes")
    'the costs of 150 of 200 pages are assumed, so this plan in bytes is uncertain'
    >>> ground_of_costs(200, 0, "bytes")
    ''
    """
    if not n_assumed_costs:
        return ""
    costs = f"{n_assumed_costs:,} of {counted(n_pages, 'page')}"
    if n_assumed_costs >= n_pages:
        typical = f"{number(typical_cost(unit))} {unit} a crawl"
        return f"no crawl has reported its cost, so this plan assumes {typical} and is uncertain"
    return f"the costs of {costs} are assumed, so this plan in {unit} is uncertain"
