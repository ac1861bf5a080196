"use strict";
// In a narrow window the rows of a list are cards, in which each value has the name of its column.
// Roles keep the list a table for screen readers.

const ROLES = { THEAD: "rowgroup", TBODY: "rowgroup", TR: "row", TH: "columnheader", TD: "cell" };

function label(table) {
  if (table.hasAttribute("role")) return;
  table.setAttribute("role", "table");
  for (const each of table.querySelectorAll(Object.keys(ROLES).join(","))) each.setAttribute("role", ROLES[each.tagName]);
  const names = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
  for (const row of table.tBodies[0].rows) {
    for (const cell of row.cells) cell.dataset.label = names[cell.cellIndex] ?? "";
  }
}

function labelAll() {
  for (const table of document.querySelectorAll("table.list")) label(table);
}

addEventListener("DOMContentLoaded", labelAll);
addEventListener("htmx:afterSettle", labelAll);
