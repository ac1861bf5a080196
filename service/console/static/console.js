"use strict";
// Pictures of a series become charts with a cursor and a zoom; without this script they stay.

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function format(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "%") return (100 * value).toFixed(1) + " %";
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
}

const MANY_EPOCHS = 40; // more are marked along the axis only

function epochRules(instants) {
  return {
    hooks: {
      drawClear: (plot) => {
        const { ctx, bbox } = plot;
        ctx.save();
        ctx.strokeStyle = colour("--muted");
        ctx.globalAlpha = 0.5;
        if (instants.length <= MANY_EPOCHS) ctx.setLineDash([2, 5]);
        for (const at of instants) {
          const x = plot.valToPos(at, "x", true);
          if (x < bbox.left || x > bbox.left + bbox.width) continue;
          ctx.beginPath();
          ctx.moveTo(x, instants.length > MANY_EPOCHS ? bbox.top + bbox.height - 6 : bbox.top);
          ctx.lineTo(x, bbox.top + bbox.height);
          ctx.stroke();
        }
        ctx.restore();
      },
    },
  };
}

// without a cursor the legend has the last values
function lastValues(plot) {
  const last = plot.data[0].length - 1;
  if (plot.cursor.idx == null && plot.legend.idx !== last) plot.setLegend({ idx: last });
}

function draw(figure) {
  const content = JSON.parse(figure.dataset.series);
  if (content.at.length < 2) return;
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const options = {
    width: figure.clientWidth,
    height: 230,
    tzDate: (at) => uPlot.tzDate(new Date(at * 1e3), "Etc/UTC"),
    scales: { y: { range: (plot, low, high) => [0, high > 0 ? high * 1.06 : 1] } },
    axes: [
      { ...axis, size: 40, values: uPlotTimes },
      { ...axis, size: 56, values: (plot, values) => values.map((value) => format(value, content.unit)) },
    ],
    series: [
      { value: (plot, at) => (at ? new Date(at * 1e3).toISOString().slice(0, 16).replace("T", " ") + " UTC" : "–"), label: "at" },
      ...content.lines.map((line) => ({
        label: line.name,
        stroke: colour("--" + line.colour),
        width: 2,
        points: { fill: colour("--panel"), size: 5, width: 1.5 },
        value: (plot, value) => format(value, content.unit),
      })),
    ],
    legend: { markers: { width: 0, fill: (plot, i) => (i ? colour("--" + content.lines[i - 1].colour) : "transparent") } },
    plugins: [epochRules(content.epochs)],
    hooks: { ready: [lastValues], setCursor: [lastValues] },
  };
  figure.querySelector("svg")?.remove();
  for (const item of figure.parentElement.querySelectorAll("[data-line]")) item.remove(); // the legend has them
  figure.plot = new uPlot(options, [content.at, ...content.lines.map((line) => line.values)], figure);
}

const uPlotTimes = [
  [86400, "{MMM} {D}", null, null, null, null, null, null, 1],
  [3600, "{HH}:{mm}", "\n{MMM} {D}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{MMM} {D}", null, null, null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1],
];

function drawAll() {
  for (const figure of document.querySelectorAll("[data-series]")) if (!figure.plot) draw(figure);
}

addEventListener("DOMContentLoaded", drawAll);
addEventListener("htmx:afterSettle", drawAll);
addEventListener("resize", () => {
  for (const figure of document.querySelectorAll("[data-series]")) {
    if (figure.plot) figure.plot.setSize({ width: figure.clientWidth, height: 230 });
  }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const figure of document.querySelectorAll("[data-series]")) {
    if (figure.plot) figure.plot.destroy();
    figure.plot = null;
  }
  drawAll();
});

// a slider writes its value into a field
addEventListener("input", (event) => {
  const field = event.target.dataset && document.getElementById(event.target.dataset.sets);
  if (field) field.value = Number(Number(event.target.value).toPrecision(3));
});
