"""Savings as an answer, with a sentence for people."""

from recrawl_client.wire.savings import ComparedStaleness, SavingsAnswer
from service.history.savings import Compared, Savings
from service.model.amounts import CRAWLS
from service.model.words import counted, number, span

DAY_S = 86_400.0
NO_DIFFERENCE = 0.005
"""Saving below which no percentage is written."""


def encode_savings(savings: Savings) -> SavingsAnswer:
    """Return the answer."""
    return SavingsAnswer(
        sentence=sentence(savings),
        at=savings.at,
        since=savings.since,
        n_pages=savings.n_pages,
        n_crawls=savings.n_crawls,
        n_changes=savings.n_changes,
        crawl_interval=savings.crawl_interval,
        unit=savings.unit,
        spent=savings.spent,
        n_uniform=savings.n_uniform,
        n_cut=savings.n_cut,
        equal_importance=savings.equal_importance,
        sampled_share=savings.sampled_share,
        harmonic=_compared(savings.harmonic),
        stale=_compared(savings.stale),
        missing=savings.missing,
    )


def _compared(compared: Compared | None) -> ComparedStaleness | None:
    if compared is None:
        return None
    value, low, high = compared.ratio
    return ComparedStaleness(
        fleet=compared.fleet,
        uniform=compared.uniform,
        saved=1.0 - value,
        low=1.0 - high,
        high=1.0 - low,
    )


def _same(savings: Savings) -> str:
    """Return what both sides have in common."""
    crawls = counted(savings.n_crawls, "crawl")
    share = savings.sampled_share
    of = "" if share == 1 else f" (in a sample of {share:.0%} of the pages)"
    if savings.unit == CRAWLS:
        return f"with the same {crawls}{of}"
    other = f"{savings.n_uniform:,} in place of {crawls}"
    return f"for the same {number(savings.spent)} {savings.unit}, with {other}{of}"


def sentence(savings: Savings) -> str:
    """Return the sentence for people."""
    if savings.harmonic is None or savings.stale is None:
        return f"Not enough log yet: {savings.missing}."
    saved = 1.0 - savings.harmonic.ratio.value
    amount, chance = f"{abs(saved):.0%} {'less' if saved > 0 else 'more'} staleness than", ""
    if abs(saved) < NO_DIFFERENCE:
        amount = "the same staleness as"
    elif savings.harmonic.ratio.low <= 1.0 <= savings.harmonic.ratio.high:
        chance = " (which may be chance)"
    window = span((savings.at - savings.begun_at).total_seconds())
    weight = "equal" if savings.equal_importance else "as set"
    equally = "equally often"
    if savings.n_cut:
        equally = "equally often, as far as the delays, windows and caps of hosts allow"
    return (
        f"In {window} this fleet's copies had {amount} if every page had been crawled "
        f"{equally}, {_same(savings)}{chance}; copies were stale "
        f"{savings.stale.fleet:.1%} of the time, and {savings.stale.uniform:.1%} under uniform "
        f"crawling. By the log and the estimated change rates; importance {weight}."
    )
