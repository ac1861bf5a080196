"use strict";
// In a narrow window a button shows the menu, and Escape closes it; filters without a value fold.

const button = document.querySelector(".fold");

function fold(open) {
  button.setAttribute("aria-expanded", String(open));
}

button.addEventListener("click", () => fold(button.getAttribute("aria-expanded") !== "true"));
addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || button.getAttribute("aria-expanded") !== "true") return;
  fold(false);
  button.focus();
});

function isBlank(details) {
  const fields = [...details.querySelectorAll("input, select")];
  return fields.every((field) => (field.type === "checkbox" ? !field.checked : !field.value || field.name === "sort"));
}

if (matchMedia("(max-width: 48rem)").matches) {
  for (const details of document.querySelectorAll(".folded")) if (isBlank(details)) details.open = false;
}
