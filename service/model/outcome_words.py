"""Outcomes of crawls in words: one for lists, a clause for sentences, and what to do. Pure."""

from service.model.arrays import UNSPECIFIED
from service.model.outcomes import BY_STATUS, INVENTED, OFFERED, PAYMENT, ROBOTS_DENIED, Outcome

NO_ANSWER = 0
"""Status of a crawl that got no answer."""
FORBIDDEN = "forbidden by robots.txt"
WORD = {
    Outcome.content: "content",
    Outcome.moved: "redirected for good",
    Outcome.absent: "absent",
    Outcome.elsewhere: "redirected",
    Outcome.refused: "refused",
    Outcome.empty: "empty",
    Outcome.failed: "failed",
    Outcome.unfinished: "not reported",
    Outcome.doubtful: "in doubt",
    Outcome.offered: "offered for a price",
}
FOUND = {
    Outcome.content: "got no content",
    Outcome.moved: "got no content, because it redirects {target} for good, which a second look "
    "confirms",
    Outcome.absent: "got no content, because it seems to be gone, which a second look confirms",
    Outcome.elsewhere: "got no content, because it redirects {target}",
    Outcome.refused: "got no content, because the site refuses it",
    Outcome.empty: "got no content, because the answer was empty",
    Outcome.failed: "failed",
    Outcome.unfinished: "ended without a report",
    Outcome.doubtful: "is in doubt, because other pages of its host showed the same at that time",
    Outcome.offered: "got a price in place of content",
}
"""End of a clause on the last crawls of a page, by the outcome of the last one."""
IS_WALL = "it is a wall, such as a login, to which many pages redirect"
FOUND_WALL = f"got no content of its own, because {IS_WALL}"
FOUND_FORBIDDEN = "got no content, because robots.txt forbids it"
FOUND_LOOP = "got no content, because it redirects to itself"
FOUND_UNPAID = "got no content, because the site asks for payment (402)"
REMEDY = {
    Outcome.elsewhere: "register the page behind the redirect in its place, or delete it",
    Outcome.refused: "have your crawler let in, or delete the page",
    Outcome.empty: "report a digest or `changed`, or delete the page",
    Outcome.failed: "look after the site, or delete the page",
    Outcome.unfinished: "look after the crawlers, which do not report it",
    Outcome.offered: "raise the budget, or wait until the price is worth a crawl",
}
"""Remedy for a page without content, by the outcome of its last crawl; others need none."""
REMEDY_WALL = (
    "have your crawler log in or accept what the site asks for at {target}, to which many pages "
    "redirect, or delete these pages"
)
REMEDY_TARGET = "delete the page if you do not need it: {target} is crawled in its place"
REMEDY_FORBIDDEN = "ask its site for leave, or delete the page"
REMEDY_LOOP = (
    "have your crawler keep the cookies of the site, which may wait for one, or delete the page"
)
REMEDY_UNPAID = (
    'set a budget of money, such as by `recrawl budget set "5 USD"`, and report the price of the '
    "page, or delete it"
)


def result_word(status: int | None, *, robots_denied: bool = False) -> str:
    """Return the word of a crawl's result, by what its log has.

    >>> [result_word(status) for status in (200, None, 0, 302, 308, 404, 403, 503)]
    ['content', 'content', 'no answer', 'redirected', 'redirected for good', 'absent', 'refused', \
'failed']
    >>> result_word(None, robots_denied=True)
    'forbidden by robots.txt'
    """
    if robots_denied or status == ROBOTS_DENIED:
        return FORBIDDEN
    if status == NO_ANSWER:
        return "no answer"
    return WORD[outcome_of_status(status)]


def outcome_of_status(status: int | None) -> Outcome:
    """Return the outcome of a status, of a crawl whose content and target the log does not have."""
    code = UNSPECIFIED if status is None else status if 0 <= status <= OFFERED else INVENTED
    return Outcome(int(BY_STATUS[code]))


def found(
    outcome: Outcome, status: int | None, *, loops: bool = False, target: str | None = None
) -> str:
    """Return the end of a clause on the last crawls; `status` is that of the last one, if known.

    `loops`: the page redirects to itself; `target` is the URL to which it redirects, if known.

    >>> found(Outcome.failed, 503), found(Outcome.failed, 0), found(Outcome.failed, None)
    ('failed with status 503', 'got no answer', 'failed')
    """
    if status == ROBOTS_DENIED:
        return FOUND_FORBIDDEN
    if outcome is Outcome.refused and status == PAYMENT:
        return FOUND_UNPAID
    if outcome is Outcome.elsewhere and loops:
        return FOUND_LOOP
    if is_wall(outcome, status):
        return FOUND_WALL
    if outcome is Outcome.failed and status is not None:
        return "got no answer" if status == NO_ANSWER else f"failed with status {status}"
    return FOUND[outcome].format(target="elsewhere" if target is None else f"to {target}")


def is_wall(outcome: Outcome, status: int | None) -> bool:
    """Return whether a page counts as absent though its site showed content (`redirects.walls`).

    >>> is_wall(Outcome.absent, 200), is_wall(Outcome.absent, 404), is_wall(Outcome.content, 200)
    (True, False, False)
    """
    if outcome is not Outcome.absent or status is None:
        return False
    return outcome_of_status(status) is Outcome.content


def remedy(
    outcome: Outcome,
    status: int | None,
    *,
    loops: bool = False,
    target: str | None = None,
    shared: bool = False,
) -> str:
    """Return what to do about a page without content; "" where nothing helps but time.

    `target` is the URL to which it redirects, and `shared` if many pages redirect there.
    """
    if outcome is Outcome.elsewhere and loops:
        return REMEDY_LOOP
    if outcome is Outcome.elsewhere and target is not None:
        return (REMEDY_WALL if shared else REMEDY_TARGET).format(target=target)
    if status == ROBOTS_DENIED:
        return REMEDY_FORBIDDEN
    if outcome is Outcome.refused and status == PAYMENT:
        return REMEDY_UNPAID
    return REMEDY.get(outcome, "")
