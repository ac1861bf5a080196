"use strict";
// Pictures of a series become charts with a cursor and a zoom; without this script they stay.

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function format(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "%") return (100 * value).toFixed(1) + "%";
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
}

// marks of an axis are as short as they can be
function tick(value, unit) {
  return unit === "%" ? Number((100 * value).toFixed(1)) + "%" : format(value, unit);
}

const HEIGHT = 230;
const FONT = "12px system-ui, sans-serif";
const MANY_EPOCHS = 12; // more are marked along the axis only

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

// a few points are marked and joined; counts over steps are bars
function drawnAs(line, content) {
  const own = colour("--" + line.colour);
  if (content.step_s) {
    return { fill: own, stroke: own, width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [0.8, 48], align: 1 }) };
  }
  return {
    stroke: own,
    width: 2,
    spanGaps: content.few,
    points: { show: content.few, fill: colour("--panel"), stroke: own, size: 7, width: 2 },
  };
}

function draw(figure) {
  const content = JSON.parse(figure.dataset.series);
  if (content.at.length < 2) return;
  const axis = {
    font: FONT,
    stroke: colour("--muted"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false },
  };
  const options = {
    width: figure.clientWidth,
    height: HEIGHT,
    tzDate: (at) => uPlot.tzDate(new Date(at * 1e3), "Etc/UTC"),
    scales: {
      x: { range: (plot, low, high) => [low, content.step_s && high === content.at.at(-1) ? high + content.step_s : high] },
      y: { range: (plot, low, high) => [0, high > 0 ? high * 1.06 : 1] },
    },
    axes: [
      { ...axis, size: 40, space: 64, values: uPlotTimes },
      {
        ...axis,
        size: 54,
        values: (plot, values) =>
          values.map((value) => (content.whole && !Number.isInteger(value) ? "" : tick(value, content.unit))),
      },
    ],
    series: [
      { value: (plot, at) => (at ? new Date(at * 1e3).toISOString().slice(0, 16).replace("T", " ") + " UTC" : "–"), label: "at" },
      ...content.lines.map((line) => ({
        label: line.name,
        value: (plot, value) => format(value, content.unit),
        ...drawnAs(line, content),
      })),
    ],
    legend: { markers: { width: 0, fill: (plot, i) => (i ? colour("--" + content.lines[i - 1].colour) : "transparent") } },
    plugins: [epochRules(content.epochs)],
    hooks: { ready: [lastValues], setCursor: [lastValues] },
  };
  figure.querySelector("svg")?.remove();
  for (const item of figure.parentElement.querySelectorAll("[data-line]")) item.remove(); // the legend has them
  figure.plot = new uPlot(options, [content.at, ...content.lines.map((line) => line.values)], figure);
  widths.observe(figure);
}

// a chart is drawn again for each new width of its place
const widths = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.plot && target.plot.width !== target.clientWidth) {
      target.plot.setSize({ width: target.clientWidth, height: HEIGHT });
    }
  }
});

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
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const figure of document.querySelectorAll("[data-series]")) {
    if (figure.plot) figure.plot.destroy();
    figure.plot = null;
  }
  drawAll();
});
