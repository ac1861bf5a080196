"""The table of a comparison, as rows of short texts: for the terminal and for the report."""

from collections.abc import Callable
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from recrawl_lab.worlds.recording import window

Policy = dict[str, Any]
"""One element of `policies` in the document of the results."""


class Column(NamedTuple):
    """One measure as a column of the table."""

    title: str
    meaning: str
    text: Callable[[Policy], str]
    bounds: Callable[[Policy], str] = lambda _: ""
    """Function to the text of the measure's confidence interval."""
    short: bool = True
    """True for a column that the terminal shows."""


def show(made: dict[str, Any], console: Console) -> None:
    """Print the table, the findings and the explanations of the columns."""
    world = made["world"]
    view = Table(
        title=f"Staleness, {escape(world['name'])}: {world['pages']:,} pages, "
        f"{window(world['days'])}\nbandwidth {made['bandwidth']:,.1f} crawls a day "
        f"({made['bandwidth_per_page']:.3g} per existing page)"
    )
    view.add_column("policy", overflow="fold")
    shown = [column for column in COLUMNS if column.short]
    for column in shown:
        view.add_column(column.title.replace(" ", "\n"), justify="right", no_wrap=True)
    for policy in made["policies"]:
        view.add_row(policy["policy"], *(column.text(policy) for column in shown))
    console.print(view)
    for finding in made["findings"]:
        console.print(escape(finding), highlight=False)
    for note in world["notes"]:
        console.print(f"Note: {escape(note)}.", highlight=False)


def _bounded(title: str, key: str, form: str, meaning: str, *, short: bool = True) -> Column:
    def text(policy: Policy) -> str:
        return form.format(policy[key]["value"]) if policy[key] else ""

    def bounds(policy: Policy) -> str:
        if not policy[key]:
            return ""
        return f"{form.format(policy[key]['low'])} … {form.format(policy[key]['high'])}"

    return Column(title, meaning, text, bounds, short)


def _against(policy: Policy, part: str) -> str:
    saving = policy["saving_over_uniform"]
    return f"{0.0 - saving[part]:+.1%}" if saving else ""


def _score(policy: Policy, window: str, score: str, form: str) -> str:
    return form.format(policy[window][score]) if policy[window] else ""


COLUMNS: tuple[Column, ...] = (
    _bounded(
        "harmonic",
        "harmonic",
        "{:.4f}",
        "staleness: a page with n uncrawled changes costs 1 + 1/2 + … + 1/n; mean "
        "over time and pages, by importance",
    ),
    Column(
        "vs uniform",
        "harmonic staleness against that of uniform crawling",
        lambda p: _against(p, "value"),
        lambda p: f"{_against(p, 'high')} … {_against(p, 'low')}",
    ),
    _bounded(
        "gap closed",
        "gap_closed",
        "{:.0%}",
        "share of what hindsight gains over uniform crawling; above 100 % where timing counts, "
        "because hindsight knows mean rates only",
        short=False,
    ),
    _bounded(
        "stale",
        "binary",
        "{:.1%}",
        "share of visits that find an old copy; visitors choose pages by importance",
    ),
    _bounded(
        "age, days",
        "age_days",
        "{:.2f}",
        "mean time since the oldest uncrawled change, 0 without one; weighted by importance",
    ),
    _bounded(
        "harmonic, plain", "harmonic_plain", "{:.4f}", "all pages have equal weight", short=False
    ),
    _bounded("stale, plain", "binary_plain", "{:.1%}", "all pages have equal weight", short=False),
    _bounded("age, plain", "age_days_plain", "{:.2f}", "all pages have equal weight", short=False),
    _bounded(
        "never crawled",
        "never_crawled",
        "{:.1%}",
        "pages without a crawl after the first one",
    ),
    Column(
        "crawls",
        "without the first crawl of each page",
        lambda p: f"{p['n_crawls']:,}",
        short=False,
    ),
    Column("used", "share of the bandwidth", lambda p: f"{p['bandwidth_used']:.0%}"),
    Column(
        "calibration error",
        "mean distance between the predicted probability of a change "
        "and the observed share of changes, after the first quarter of the window (all of it)",
        lambda p: _score(p, "calibration_learnt", "expected_error", "{:.1%}"),
        lambda p: _score(p, "calibration", "expected_error", "all: {:.1%}"),
        short=False,
    ),
    Column(
        "log loss",
        "of the predictions after the first quarter, and of the best constant",
        lambda p: _score(p, "calibration_learnt", "log_loss", "{:.3f}"),
        lambda p: _score(p, "calibration_learnt", "log_loss_constant", "constant: {:.3f}"),
        short=False,
    ),
)
"""Columns after the policy's name."""
