"""Words for the pause of a host after trouble, by the status of the crawl that caused it. Pure."""

from service.model.outcome_words import NO_ANSWER
from service.model.outcomes import ASKS_FOR_PAUSE, TROUBLE


def paused_because(status: int | None) -> str:
    """Return why a host pauses, as a clause without its subject; None: not known.

    >>> paused_because(429), paused_because(502), paused_because(0)
    ('asked for a pause with status 429', 'failed with status 502', 'did not answer')
    >>> paused_because(200), paused_because(None)[:45]
    ('asked for a pause by Retry-After', 'asked for a pause (429, 503, Retry-After), fa')
    """
    if status is None:
        return "asked for a pause (429, 503, Retry-After), failed or did not answer"
    if status == NO_ANSWER:
        return "did not answer"
    if status in ASKS_FOR_PAUSE:
        return f"asked for a pause with status {status}"
    return f"failed with status {status}" if status in TROUBLE else ASKED


ASKED = "asked for a pause by Retry-After"


def act_on_pause(host: str, status: int | None) -> str:
    """Return what to do about a host that pauses for long.

    >>> act_on_pause("a.example", 503), act_on_pause("a.example", 0)
    ('Crawl a.example less', 'See whether a.example can be reached')
    """
    if status == NO_ANSWER:
        return f"See whether {host} can be reached"
    asks = status is not None and (status in ASKS_FOR_PAUSE or status not in TROUBLE)
    return f"Crawl {host} less" if asks else f"See what {host} answers"
