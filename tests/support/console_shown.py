"""Numbers that a view shows, read from the browser's document, and its comparison with a number."""

import re
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from playwright.sync_api import Page

from service.console.render import DASH

READ = """
() => {
  const text = (node) => node.textContent.replace(/\\s+/g, " ").trim();
  const cell = (node) => {
    const time = node.querySelector("time[datetime]");
    return time ? time.getAttribute("datetime") : text(node);
  };
  const name = (table) => {
    const region = table.closest("[role=region]");
    if (region) return region.getAttribute("aria-label");
    for (let node = table.previousElementSibling; node; node = node.previousElementSibling)
      if (node.tagName === "H2") return text(node);
    return "";
  };
  const every = (query) => [...document.querySelectorAll(query)];
  return {
    has_next: every("a[rel=next]").length > 0,
    head: every(".head").map(text).join(" "),
    cards: Object.fromEntries(every(".card").map((card) => [
      text(card.querySelector("span")),
      ["strong", "em"].map((part) => card.querySelector(part))
        .map((node) => node ? cell(node) : ""),
    ])),
    facts: Object.fromEntries(every(".facts > div").map((one) => [
      text(one.querySelector("dt")), cell(one.querySelector("dd")),
    ])),
    tables: Object.fromEntries(every("main table").map((table) => [name(table), {
      columns: [...table.querySelectorAll("thead th")].map(text),
      rows: [...table.querySelectorAll("tbody tr")].filter((row) => !row.querySelector("td.empty"))
        .map((row) => [...row.children].map(cell)),
    }])),
  };
}
"""
UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0, "%": 0.01}
"""Units of shown numbers, in seconds and shares."""


@dataclass(frozen=True)
class Shown:
    """The words and numbers of a view."""

    has_next: bool
    """True if the list has another part."""
    head: str
    cards: dict[str, list[str]]
    facts: dict[str, str]
    tables: dict[str, dict[str, list[Any]]]

    @classmethod
    def of(cls, page: Page) -> "Shown":
        """Return what a page shows, closed parts included."""
        return cls(**page.evaluate(READ))

    def column(self, table: str, name: str) -> list[str]:
        """Return the cells of a column."""
        at = self.tables[table]["columns"].index(name)
        return [row[at] for row in self.tables[table]["rows"]]


def same(text: str, value: Any) -> bool:
    """Return whether a text shows a value, to the digits of the text.

    >>> same("1,235", 1234.6), same("12.3 %", 0.12345), same("4.6 d", 400_000), same("never", None)
    (True, True, True, True)
    >>> same("1,236", 1234.6), same("12.3 %", 0.1224), same("active", "active")
    (False, False, True)
    """
    if value is None:
        return text in {DASH, "never"}
    if isinstance(value, datetime):
        return abs((datetime.fromisoformat(text) - value).total_seconds()) <= 1
    if isinstance(value, str):
        return text == value
    match = re.fullmatch(r"(-?[\d,.]+(?:e[+-]\d+)?)(?:\s?(ms|s|min|h|d|%))?", text)
    if match is None:
        return False
    digits, unit = Decimal(match[1].replace(",", "")), UNITS.get(match[2] or "", 1.0)
    half = float(Decimal("0.5001").scaleb(int(digits.as_tuple().exponent)))
    return abs(float(digits) - float(value) / unit) <= half
