"use strict";
// a slider writes its value into a field
addEventListener("input", (event) => {
  const field = event.target.dataset && document.getElementById(event.target.dataset.sets);
  if (field) field.value = Number(Number(event.target.value).toPrecision(3));
});
