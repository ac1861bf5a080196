"""The report of a comparison: one self-contained HTML file, for screens of any size.

Figures are SVG in the page; there is no script and nothing is fetched. The same results
produce the same bytes.
"""

from collections.abc import Iterator
from html import escape
from itertools import pairwise
from string import Template
from typing import Any

from recrawl_lab.policies.lineup import HINDSIGHT, RECRAWL, UNIFORM
from recrawl_lab.replay.measures import MASS
from recrawl_lab.reports.charts import Bar, Series, bars, lines, reliability
from recrawl_lab.reports.summary import COLUMNS
from recrawl_lab.worlds.recording import window

Made = dict[str, Any]
"""The document of the results; see `results.document`."""

INKS = {"today": 0, "learning": 1, "bound": 2}
RECRAWL_INK = 3
LANDMARKS = {UNIFORM: 0, HINDSIGHT: 2, RECRAWL: 3}
"""Policies that are in all curves, with their colours."""
OTHER_INKS = (4, 5)
"""Colours of the best of the other policies."""

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --soft: #5b6570; --rule: #d8dde3;
  --today: #8a94a0; --learning: #56a3c9; --bound: #b79be0; --recrawl: #0b6e4f; --fifth: #d97706;
  --sixth: #c2410c; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --ink: #e6e9ec; --soft: #9aa5b1;
  --rule: #32383f; --today: #7d8894; --learning: #5fb0d8; --bound: #a78bda; --recrawl: #34d399;
  --fifth: #fbbf24; --sixth: #fb923c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1rem 1rem 4rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 1rem 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .5rem; }
.findings p { margin: .5rem 0; } .findings p:first-child { font-size: 1.2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: 0; }
dt, .soft, figcaption, td small { color: var(--soft); } dd { margin: 0; }
code { font-size: .88em; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .35rem .6rem; text-align: right; vertical-align: top; white-space: nowrap;
  border-bottom: 1px solid var(--rule); font-variant-numeric: tabular-nums; }
thead th { white-space: normal; vertical-align: bottom; min-width: 5.2rem; overflow-wrap: normal; }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); }
td small { display: block; font-size: .75rem; } tr.recrawl { font-weight: 600; }
tr.recrawl small { font-weight: 400; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr));
  gap: 1.5rem; } figure { margin: 0; } svg { width: 100%; max-width: 34rem; display: block; }
figcaption { font-size: .85rem; } .key { list-style: none; margin: .3rem 0; padding: 0;
  font-size: .85rem; display: flex; flex-wrap: wrap; gap: .1rem 1rem; }
.key span { display: inline-block; width: .9em; height: .9em; border-radius: 2px;
  margin-right: .4em; vertical-align: -.08em; background: currentColor; }
.key .name { color: var(--ink); background: none; width: auto; height: auto; margin: 0; }
@media (max-width: 34rem) { dl { display: block; } dd { margin: 0 0 .5rem; }
  table { font-size: .82rem; } th, td { padding: .3rem .4rem; } thead th { min-width: 4.2rem; } }
svg text { font: 11px system-ui, sans-serif; fill: var(--soft); } svg .label { fill: var(--ink); }
.grid { stroke: var(--rule); stroke-width: 1; } .diagonal { stroke: var(--soft);
  stroke-dasharray: 4 3; } .whisker { stroke: var(--ink); stroke-width: 1.2; fill: none; }
.line { fill: none; stroke: currentColor; stroke-width: 1.8; stroke-linejoin: round; }
.bar, .point { fill: currentColor; } .point { fill-opacity: .75; }
.policy-0 { color: var(--today); } .policy-1 { color: var(--learning); }
.policy-2 { color: var(--bound); } .policy-3 { color: var(--recrawl); }
.policy-4 { color: var(--fifth); } .policy-5 { color: var(--sixth); }
"""

PAGE = Template("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>$style</style>
<h1>$title</h1>
<p class="soft">$subtitle</p>
<section class="findings">$findings</section>
<h2>What was played</h2>
<dl>$facts</dl>
<h2>All policies</h2>
<div class="scroll"><table>$table</table></div>
<p class="soft">Small figures: $mass bootstrap intervals over pages. They say how far it matters
which pages the site happens to have, not how another year would have gone.</p>
<h2>Figures</h2>
<div class="figures">$figures</div>
<h2>What the columns mean</h2>
<dl>$meanings</dl>
<h2>The policies</h2>
<dl>$policies</dl>
</html>
""")


def page(made: Made) -> str:
    """Return the report as HTML."""
    world = made["world"]
    title = f"Replay of {world['name']}"
    subtitle = (
        f"{world['pages']:,} pages, {world['changes']:,} changes in {window(world['days'])}, "
        f"{made['bandwidth']:,.1f} crawls a day"
    )
    return PAGE.substitute(
        title=escape(title),
        style=STYLE,
        subtitle=escape(subtitle),
        findings="".join(f"<p>{escape(text)}</p>" for text in made["findings"]),
        facts=_pairs(_facts(made)),
        table=_table(made),
        mass=f"{MASS:.0%}",
        figures="".join(_figures(made)),
        meanings=_pairs((column.title, escape(column.meaning)) for column in COLUMNS),
        policies=_pairs((p["policy"], escape(p["description"])) for p in made["policies"]),
    )


def _facts(made: Made) -> Iterator[tuple[str, str]]:
    yield "command", f"<code>{escape(made['command'])}</code>"
    mean_pages = f"{made['world']['mean_pages']:,.0f} pages that exist on average"
    per_page = f"{made['bandwidth_per_page']:.3g} for each of the {mean_pages}"
    yield "bandwidth", f"{made['bandwidth']:,.1f} crawls a day, {per_page}"
    step = made["step"]
    yield "epochs", "every day" if step == 1 else f"every {step:.3g} days"
    yield "change notices", escape(made["notices"])
    yield "seed", str(made["seed"])
    for note in made["world"]["notes"]:
        yield "note", escape(note)


def _pairs(pairs: Any) -> str:
    return "".join(f"<dt>{escape(name)}</dt><dd>{text}</dd>" for name, text in pairs)


def _table(made: Made) -> str:
    head = "".join(
        f'<th title="{escape(column.meaning)}">{column.title}</th>' for column in COLUMNS
    )
    rows = "".join(_row(policy) for policy in made["policies"])
    return f"<thead><tr><th>policy</th>{head}</tr></thead><tbody>{rows}</tbody>"


def _row(policy: Made) -> str:
    cells = "".join(
        f"<td>{column.text(policy)}<small>{column.bounds(policy)}</small></td>"
        for column in COLUMNS
    )
    mark = ' class="recrawl"' if policy["policy"] == RECRAWL else ""
    return f"<tr{mark}><th>{policy['policy']}</th>{cells}</tr>"


# -- figures


def _figures(made: Made) -> Iterator[str]:
    policies = made["policies"]
    yield _figure(
        bars([_bar(policy) for policy in policies], "Harmonic staleness of each policy"),
        f"Harmonic staleness, less is better; whiskers: {MASS:.0%} intervals.",
    )
    series = [_curve(p, made["curve_edges"], ink) for p, ink in _in_curves(policies)]
    yield _figure(
        lines(series, "Harmonic staleness over time", "day"),
        f"Harmonic staleness over time, averaged over {len(made['curve_edges']) - 1} parts.",
        [(one.label, one.ink) for one in series],
    )
    predicting = [p for p in policies if p["calibration_learnt"]]
    shown = next((p for p in predicting if p["policy"] == RECRAWL), (predicting or [None])[0])
    if shown is not None:
        windows = (("whole window", "calibration", 1), ("after a quarter", "calibration_learnt", 3))
        points = [
            Series(label, shown[key]["expected"], shown[key]["observed"], ink)
            for label, key, ink in windows
        ]
        yield _figure(
            reliability(points, "Reliability of predictions"),
            f"Share of pages found changed over what {shown['policy']} predicted; bins of equally "
            "many crawls. On the dashed line predictions are right.",
            [(one.label, one.ink) for one in points],
        )


def _bar(policy: Made) -> Bar:
    ink = RECRAWL_INK if policy["policy"] == RECRAWL else INKS[policy["kind"]]
    return Bar(policy["policy"], **policy["harmonic"], ink=ink)


def _in_curves(policies: list[Made]) -> list[tuple[Made, int]]:
    """Return few policies with distinct colours: landmarks, and the best of the others."""
    by_name = {policy["policy"]: policy for policy in policies}
    others = [p for p in policies if p["policy"] not in LANDMARKS and p["kind"] != "bound"]
    others.sort(key=lambda policy: float(policy["harmonic"]["value"]))
    return [
        *zip(others, OTHER_INKS, strict=False),
        *((by_name[name], ink) for name, ink in LANDMARKS.items() if name in by_name),
    ]


def _curve(policy: Made, edges: list[float], ink: int) -> Series:
    middles = [(start + end) / 2 for start, end in pairwise(edges)]
    return Series(policy["policy"], middles, policy["curve"], ink)


def _figure(drawn: str, caption: str, key: list[tuple[str, int]] | None = None) -> str:
    entries = "".join(
        f'<li class="policy-{ink}"><span></span><span class="name">{escape(label)}</span></li>'
        for label, ink in key or ()
    )
    listed = f'<ul class="key">{entries}</ul>' if entries else ""
    return f"<figure>{drawn}{listed}<figcaption>{escape(caption)}</figcaption></figure>"
