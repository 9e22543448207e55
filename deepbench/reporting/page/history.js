"use strict";
/* Each case over time: a chart per case with its levels, its change points and what was recorded to change, and a table
   of all cases. */
const content = JSON.parse(document.getElementById("content").textContent);
const { rows } = content;
const severalMachines = content.files.length > 1;
/* The place of the machine that a link names: history.html?machine=…, -1 without one. */
const wanted = new URLSearchParams(location.search).get("machine");
const linked = severalMachines ? content.files.findIndex((file) => file.identity === wanted) : -1;

/* So many charts at first, and with each click. */
const AT_ONCE = 12;
/* Intervals of more points would hide each other. */
const MOST_WITH_INTERVALS = 300;

/* ---- the charts */

/* The points of a chart, thinned; those next to a change point stay, because lines of levels end there. */
function pointsOf(chart) {
  const runs = content.runs[rows[chart.row].machineIndex];
  const disturbed = new Set(chart.disturbed);
  const edges = new Set(chart.changes.flatMap((c) => [c.before, c.after]));
  const all = chart.run.map((run, i) => ({
    run,
    began: runs[run][0],
    file: runs[run][1],
    version: chart.versions.findLast(([first]) => first <= i)?.[1],
    time_s: chart.time_s[i],
    low_s: chart.low_s[i],
    high_s: chart.high_s[i],
    disturbed: disturbed.has(i),
  }));
  const step = Math.ceil(all.length / MOST_POINTS);
  return step > 1 ? all.filter((p, i) => i % step === 0 || edges.has(p.run) || i === all.length - 1) : all;
}

/* The levels between change points: their first and last undisturbed run, and the median of their times. */
function levelsOf({ run, changes, disturbed }) {
  if (!changes.length) return [];
  const deciding = run.filter((_, i) => !disturbed.includes(i));
  const starts = [deciding[0], ...changes.map((c) => c.after)],
    ends = [...changes.map((c) => c.before), deciding.at(-1)],
    medians = [changes[0].before_s, ...changes.map((c) => c.after_s)];
  return starts.map((start, i) => [start, ends[i], medians[i]]);
}

function drawCase(chart) {
  const row = rows[chart.row],
    runs = content.runs[row.machineIndex],
    points = pointsOf(chart);
  const most_s = Math.max(...points.map((p) => p.time_s));
  const [size, unit] = SECONDS.find(([s]) => most_s >= s) ?? SECONDS.at(-1);
  const scaled = (seconds) => (seconds == null ? null : seconds / size);
  const { color, symbol } = libraryStyle(row.library);
  const hover = (p) =>
    plainLines([
      p.began.replace("T", " ").replace("Z", " UTC"),
      p.disturbed ? `${format.atMost(p.time_s)}, disturbed` : format.seconds(p.time_s),
      [row.library, p.version].filter(Boolean).join(" "),
      p.file,
    ]);
  const times = {
    type: "scatter",
    mode: "markers",
    name: format.plain(row.library),
    x: points.map((p) => p.began),
    y: points.map((p) => scaled(p.time_s)),
    text: points.map(hover),
    hoverinfo: "text",
    meta: {
      columns: {
        case: points.map(() => row.case),
        library: points.map(() => row.library),
        version: points.map((p) => p.version ?? ""),
        precision: points.map(() => row.precision),
        threads: points.map(() => row.threads),
        file: points.map((p) => p.file),
        disturbed: points.map((p) => (p.disturbed ? "yes" : "")),
      },
    },
    marker: { color, symbol: points.map((p) => symbol + (p.disturbed ? "-open" : "")), size: 7, opacity: 0.85 },
    ...(points.length > MOST_WITH_INTERVALS
      ? {}
      : intervals(
          points,
          (p) => scaled(p.time_s),
          (p) => scaled(p.low_s),
          (p) => scaled(p.high_s),
        )),
  };
  const levels = levelsOf(chart);
  const lines = levels.length && {
    ...lineTrace(
      levels.flatMap(([start, end]) => [runs[start][0], runs[end][0], null]),
      levels.flatMap(([, , level]) => [scaled(level), scaled(level), null]),
      "median of a level",
    ),
    line: { color: styleOf("--front"), width: 2 },
  };
  const colorOf = (c) => styleOf(c.after_s > c.before_s ? "--warn" : "--good");
  const shapes = chart.changes.map((c) => ({
    type: "line",
    ...{ x0: runs[c.after][0], x1: runs[c.after][0], yref: "paper", y0: 0, y1: 1 },
    line: { color: colorOf(c), width: 1.5, dash: "dot" },
  }));
  const ofChanges = chart.changes.map((c) => ({
    x: runs[c.after][0],
    ...{ yref: "paper", y: 1, yanchor: "bottom", xanchor: anchorOf(chart, c.after), showarrow: false },
    text: format.plain(`${c.after_s > c.before_s ? "▲" : "▼"} ${c.words}`),
    hovertext: plainLines([dayOf(chart, c.after), c.words, ...shortLines(c.with)]),
    font: { color: colorOf(c), size: 12 },
  }));
  const ofMarks = chart.marks.map(([run, text]) => ({
    x: runs[run][0],
    ...{ yref: "paper", y: 0, yanchor: "bottom", xanchor: "center", showarrow: false },
    text: "◆",
    hovertext: plainLines([dayOf(chart, run), ...shortLines(text)]),
    font: { color: styleOf("--front"), size: 12 },
  }));
  return [
    [times, lines].filter(Boolean),
    layoutOf(
      { title: "start of the run (UTC)", type: "date" },
      { title: `time per call (${unit})` },
      { shapes, annotations: [...ofChanges, ...ofMarks] },
    ),
  ];
}

const runOf = (chart, run) => content.runs[rows[chart.row].machineIndex][run];
const dayOf = (chart, run) => runOf(chart, run)[0].slice(0, 10);
/* A text in lines that fit on a phone: Plotly divides none. */
const shortLines = (text) => (text.match(/.{1,44}(?:\s|$)|.{1,44}/g) ?? []).map((line) => line.trim());
/* A label near an edge of its chart would be cut off there if it were in the middle of its place. */
function anchorOf(chart, run) {
  const [first, last, at] = [chart.run[0], chart.run.at(-1), run].map((i) => Date.parse(runOf(chart, i)[0]));
  const share = last > first ? (at - first) / (last - first) : 0.5;
  return share < 0.2 ? "left" : share > 0.8 ? "right" : "center";
}

/* What is below the title of a chart: each change with what changed at the same time, and what the marks stand for. */
function textOf(chart) {
  const row = rows[chart.row];
  const changes = chart.changes.map((c) => `From ${dayOf(chart, c.after)}: ${c.words}; ${c.with}.`);
  const disturbed = chart.disturbed.length;
  return [
    severalMachines && `${row.machine}.`,
    ...(changes.length ? changes : ["No change point."]),
    chart.recorded,
    disturbed && disturbedRemark(Array(disturbed).fill({ disturbed: true })),
  ]
    .filter(Boolean)
    .join(" ");
}

function addChart(at) {
  const chart = content.charts[at],
    row = rows[chart.row];
  const title = element("strong", {}, row.title);
  /* figures.js finds the machine of a chart by the number at the end. */
  const id = `case-${at}-${row.machineIndex}`;
  const figure = element("figure", { id, tabindex: -1 }, element("figcaption", {}, title, textOf(chart)));
  const label = `${row.title} over time. ${textOf(chart)} The numbers are below the chart.`;
  addPlot(figure, label, false, () => drawCase(chart));
  document.getElementById("charts").append(figure);
  return figure;
}

/* ---- which charts */

/* Charts of cases that changed come first, unless a link names a machine without one. */
const isOfLinked = (chart) => linked < 0 || rows[chart.row].machineIndex === linked;
const hasChanges = content.charts.some((chart) => chart.changes.length);
const chosen = {
  machine: linked < 0 ? "" : String(linked),
  cases: content.charts.some((chart) => chart.changes.length && isOfLinked(chart)) ? "changed" : "all",
  first: null,
};
const more = document.getElementById("more"),
  shown = document.getElementById("shown");
let waiting = [];

function showCharts() {
  const passes = (chart) =>
    (chosen.machine === "" || String(rows[chart.row].machineIndex) === chosen.machine) &&
    (chosen.cases === "all" || chart.changes.length > 0);
  const others = content.charts.flatMap((chart, at) => (passes(chart) && at !== chosen.first ? [at] : []));
  waiting = chosen.first == null ? others : [chosen.first, ...others];
  document.querySelectorAll("#charts .plot").forEach((div) => {
    observer.unobserve(div);
    drawn.delete(div);
    if (window.Plotly && div.data) window.Plotly.purge(div);
  });
  document.getElementById("charts").replaceChildren();
  showMore();
}

function showMore() {
  const added = waiting.splice(0, AT_ONCE).map(addChart);
  const count = document.querySelectorAll("#charts figure").length;
  more.hidden = !waiting.length;
  shown.textContent = count ? `${count} of ${count + waiting.length} charts` : "No case has these properties.";
  return added;
}
more.addEventListener("click", () => showMore()[0]?.focus());

function addChoices() {
  const place = document.getElementById("choices");
  const changed = (name) => (value) => {
    chosen[name] = value;
    chosen.first = null;
    showCharts();
  };
  if (severalMachines) {
    const withChart = content.charts.map((chart) => rows[chart.row].machineIndex);
    const listed = distinct(linked < 0 ? withChart : [linked, ...withChart]).sort((a, b) => a - b);
    const machines = listed.map((at) => [String(at), content.files[at].name]);
    place.append(choice("Machine", [["", "all"], ...machines], changed("machine"), chosen.machine));
  }
  if (hasChanges) {
    const kinds = [
      ["changed", "with a change point"],
      ["all", "all"],
    ];
    place.append(choice("Cases", kinds, changed("cases"), chosen.cases));
  }
}

/* ---- the table */

const varies = (name) => distinct(rows.map((r) => r[name])).length > 1;
function addTable() {
  const columns = [
    column("title", "Case"),
    ...(severalMachines ? [column("machine", "Machine", null, { full: (r) => r.machine, wide: true })] : []),
    column("precision", "Precision", null, { shown: false }),
    column("library", "Library", null, { shown: false }),
    ...(varies("threads") ? [number("threads", "Threads")] : []),
    number("files", "Files"),
    number("disturbed", "Disturbed", null, null, { shown: varies("disturbed") }),
    number("first_s", "First", (r) => format.seconds(r.first_s)),
    number("last_s", "Last", (r) => format.seconds(r.last_s)),
    column("change", "Change", (r) => format.fasterOrSlower(r.change)),
    number("changes", "Change points"),
    column("last", "Last change"),
  ];
  const showCase = (row) => {
    chosen.first = row.chart;
    showCharts();
    const figure = document.querySelector("#charts figure");
    figure.scrollIntoView();
    figure.focus({ preventScroll: true });
  };
  return new Table(rows, columns, {
    search: (r) => [r.case, r.title, r.machine],
    filters: [
      ...(severalMachines ? [["machine", "Machine"]] : []),
      ["op", "Operation"],
      ["precision", "Precision"],
      ["library", "Library"],
    ],
    exported: ["machine", "case", ...columns.map((c) => c.name).filter((name) => !["title", "machine"].includes(name))],
    fileName: "history.csv",
    selected: linked >= 0 && rows.some((r) => r.machineIndex === linked) ? { machine: content.files[linked].name } : {},
    open: (row, text) =>
      row.chart == null
        ? element("span", {}, text)
        : element("button", { type: "button", title: `Chart of ${row.title}`, onclick: () => showCase(row) }, text),
    decorate(td, name, row) {
      if (name === "change") td.classList.toggle("bad", row.change > 1);
    },
  });
}

/* ---- a page that was opened by the link of one machine is about this machine, and has a link to all */

function showLinked() {
  const { name, about, summary } = content.files[linked];
  const header = document.querySelector("header");
  header.querySelectorAll(".note").forEach((line) => line.remove());
  const toAll = element("a", { href: "?" }, `All ${content.files.length} machines`);
  header.append(element("p", { class: "note" }, `${name}: ${about}. `, toAll));
  document.querySelector(".verdict").replaceChildren(element("li", {}, `${summary}.`));
  for (const changes of document.querySelectorAll("[data-changes-of]"))
    changes.hidden = changes.dataset.changesOf !== String(linked);
}

if (linked >= 0) showLinked();
addChoices();
showCharts();
addTable();
plotlyReady.then(() => {
  document.documentElement.dataset.ready = "yes";
});
