"use strict";
/* The charts: each is drawn from rows of the table. */

/* The palette of Okabe and Ito, which people with any color vision can tell apart; symbols differ as well. These
   colors are those of libraries, and nothing else on a page has them. */
const COLORS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C", "#B8A800"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon"];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
/* For what is no library, such as the machines of a site. */
const OTHER_COLORS = ["#7B61C9", "#2A9D8F", "#B5651D", "#C2477F", "#5E8C31", "#5B7FD0", "#9A6A8F", "#708090"];

/* The color and the symbol of each library, on every chart and page. Those that compete differ in color. */
const LIBRARIES = new Map(
  Object.entries({
    MKL: [0, 0],
    AOCL: [7, 3],
    oneDNN: [1, 1],
    "oneDNN SYCL": [1, 5],
    OpenBLAS: [2, 2],
    SciPy: [3, 3],
    "C loops": [4, 7],
    PyTorch: [5, 5],
    "PyTorch compiled": [5, 2],
    PaddlePaddle: [7, 5],
    "NumPy float64": [6, 6],
    null: [7, 4],
    cuBLAS: [2, 0],
    cuBLASLt: [0, 1],
    cuDNN: [1, 2],
    cuSPARSE: [3, 2],
    cuSPARSELt: [4, 4],
    "CUDA runtime": [7, 6],
    NCCL: [7, 0],
    hipBLAS: [2, 3],
    hipBLASLt: [0, 2],
    MIOpen: [1, 0],
    hipSPARSE: [3, 1],
    hipSPARSELt: [4, 1],
    "HIP runtime": [7, 7],
    RCCL: [7, 1],
    MPICH: [0, 3],
    "Open MPI": [1, 3],
    oneCCL: [2, 1],
    Gloo: [3, 4],
    "Intel MPI": [4, 0],
    "our ring": [6, 2],
    "ONNX Runtime": [6, 0],
    OpenVINO: [0, 5],
    XNNPACK: [6, 1],
    ggml: [6, 3],
    PJRT: [5, 0],
    IREE: [5, 1],
    simulated: [2, 6],
    "NVPL BLAS": [3, 0],
    Accelerate: [5, 3],
    LiteRT: [6, 4],
  }),
);
const pairsInUse = new Set([...LIBRARIES.values()].map(String));

/* The library of a title with variants: `MPICH` of `MPICH ring`. */
function libraryOf(title) {
  const known = [...LIBRARIES.keys()].filter((name) => title === name || title.startsWith(`${name} `));
  return known.reduce((longest, name) => (name.length > longest.length ? name : longest), known[0] ?? title);
}

/* The color and symbol of a library. One that is not in the list, of a plug-in, gets those that follow from its name;
   if another library of the page has both, the next ones that are free. */
function libraryStyle(title) {
  const name = libraryOf(title);
  if (!LIBRARIES.has(name)) {
    let hash = 2166136261;
    for (const char of name) hash = Math.imul(hash ^ char.codePointAt(0), 16777619) >>> 0;
    const pairs = COLORS.length * SYMBOLS.length;
    const pairAt = (i) => {
      const at = (hash + 9 * i) % pairs;
      return [at % COLORS.length, Math.floor(at / COLORS.length)];
    };
    const all = Array.from({ length: pairs }, (_, i) => pairAt(i));
    const pair = all.find((p) => !pairsInUse.has(String(p))) ?? all[0];
    pairsInUse.add(String(pair));
    LIBRARIES.set(name, pair);
  }
  const [color, symbol] = LIBRARIES.get(name);
  return { color: COLORS[color], symbol: SYMBOLS[symbol] };
}

/* More points make a chart slow and no clearer. */
const MOST_POINTS = 3000;
/* Families in the list of one chart. */
const MOST_FAMILIES = 400;

const CONFIG = {
  responsive: true,
  displaylogo: false,
  modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
};

/* Statuses with a time that counts. */
const MEASURED = ["ok", "imported"];

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const styleOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function layoutOf(x, y, more = {}) {
  const line = styleOf("--line"),
    front = styleOf("--front");
  const axis = (a) => ({
    gridcolor: line,
    zerolinecolor: line,
    linecolor: line,
    automargin: true,
    exponentformat: "power",
    ...a,
    title: { text: format.plain(a.title ?? ""), standoff: 10 },
  });
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: front, family: "system-ui, sans-serif", size: 13 },
    margin: { l: 60, r: 15, t: 32, b: 50 }, // Plotly's buttons are in the margin at the top
    hovermode: "closest",
    hoverlabel: { align: "left", bgcolor: styleOf("--panel"), bordercolor: front, font: { color: front } },
    showlegend: false, // figures.js puts a legend above the chart, where it covers nothing
    xaxis: axis(x),
    yaxis: axis(y),
    ...more,
  };
}
/* The layout of a chart on paper, where two are in a row, or else one that is wide. Its size in pixels is given,
   because a page is laid out for paper only after its charts were drawn. */
function onPaper(layout, wide) {
  if (!document.documentElement.dataset.paper) return layout;
  const height = Math.min(560, 0.7 * (layout.height ?? 330));
  return { ...layout, width: wide ? 680 : 325, height, font: { ...layout.font, size: 9 } };
}
const log = (title, more = {}) => ({ title, type: "log", dtick: 1, ...more });
/* Values that span less than two decades have ticks at 1, 2 and 5: one alone would not show the scale. */
const ticksOf = (values) => (Math.max(...values) / Math.min(...values) < 100 ? { dtick: "D2" } : {});
/* The decades that the values of a logarithmic axis span. */
function decadesOf(traces, name) {
  let low = Infinity,
    high = 0;
  for (const trace of traces)
    for (const value of trace[name])
      if (value > 0) {
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
  return high > low ? Math.log10(high / low) : 1;
}
/* The distance of the ticks of a logarithmic axis, so that as many labels as fit are shown and none overlap. */
function roomyTick({ type, dtick }, decades, length, font) {
  const needed = decades * 3.5 * font;
  if (type === "log" && dtick === "D2" && 3 * needed > length) dtick = 1;
  return type === "log" && typeof dtick === "number" && needed > length ? Math.ceil(needed / length) : dtick;
}
/* The layout with ticks that fit the width of its chart. */
function withRoom(layout, traces, width) {
  const { xaxis, font } = layout;
  const dtick = roomyTick(xaxis, decadesOf(traces, "x"), 0.75 * (layout.width ?? (width || 600)), font.size);
  return { ...layout, xaxis: { ...xaxis, dtick } };
}

/* ---- drawing: every chart is an element with a function `makeChart`, which returns its traces and its layout */

const drawn = new Set();
function draw(div) {
  if (!window.Plotly) {
    plotlyReady.then(() => window.Plotly && draw(div));
    return;
  }
  const [traces, made] = div.makeChart();
  const layout = withRoom(onPaper(made, div.closest(".wide")), traces, div.clientWidth);
  div.style.height = layout.height ? `${layout.height}px` : null;
  drawn.add(div);
  window.Plotly.react(div, traces, layout, CONFIG);
  if (div.onPoint && !div.listens && div.on) {
    div.listens = true;
    div.on("plotly_click", (event) => div.onPoint(event.points[0].customdata));
  }
}
/* Charts are drawn when they come into view, and again when the colors change. */
const observer = new IntersectionObserver(
  (entries) =>
    entries.forEach((e) => {
      if (e.isIntersecting && !drawn.has(e.target)) draw(e.target);
    }),
  { rootMargin: "300px" },
);
dark.addEventListener("change", () => drawn.forEach(draw));
/* Paper is white, whatever the screen is. */
window.addEventListener("beforeprint", () => {
  document.documentElement.dataset.paper = "yes";
  document.querySelectorAll(".plot").forEach(draw);
});
window.addEventListener("afterprint", () => {
  delete document.documentElement.dataset.paper;
  drawn.forEach((div) => {
    draw(div);
    window.Plotly.Plots.resize(div); // Plotly would keep the width of the paper
  });
});

function addPlot(parent, label, wide, makeChart, onPoint) {
  const div = element("div", { class: wide ? "plot wide" : "plot", role: "group", "aria-label": label });
  div.makeChart = makeChart;
  div.onPoint = onPoint;
  parent.append(div);
  observer.observe(div);
  return div;
}

/* Ticks such as 0.01 instead of powers of ten. */
const PLAIN = { tickformat: "~g" };
const SIZES = { type: "log", dtick: "D2", ...PLAIN };
/* The unit of the rates of a chart: one for all its points. */
function rateUnit(rows) {
  const tera = rows.some((r) => r.flop_per_s >= 1e13);
  const scale = tera ? 1e12 : 1e9;
  return { scale, title: `rate (${tera ? "TFLOP/s" : "GFLOP/s"})`, of: (r) => r.flop_per_s / scale };
}
const INTENSITY = "arithmetic intensity (FLOP/byte)";
const WORK = "work per call (FLOP)";
/* The letter of the size in which the problems of a family differ, and the title of its axis. */
const sweepLetter = ({ sweep_field: field }) => (field.length === 1 ? field.toUpperCase() : "N");
const sweepTitle = (row) =>
  (row.op === "conv" || row.sweep_field === "batch" ? "batch size " : "") + sweepLetter(row);
/* The title of the problems of a family, such as `1760 × N × 1760 NT`: the word in which they differ has the letter. */
function familyTitle(members) {
  const [first, ...others] = distinct(members.map((r) => r.title)).map((title) => title.split(" "));
  if (!others.length) return first.join(" ");
  if (others.some((words) => words.length !== first.length)) return members[0].family;
  const isSame = (word, at) => others.every((words) => words[at] === word);
  return first.map((word, at) => (isSame(word, at) ? word : word.replace(/\d+/, sweepLetter(members[0])))).join(" ");
}
/* Rows with the title of their family. */
function withFamilies(rows) {
  for (const members of groupBy(rows.filter((r) => r.family && r.sweep_field), (r) => r.family).values()) {
    const title = familyTitle(members);
    for (const row of members) row.familyTitle = title;
  }
  return rows;
}
/* A line through two points would suggest values between them that were not measured. */
const LEAST_JOINED = 3;
const isJoined = (members, of) => distinct(members.map(of)).length >= LEAST_JOINED;
const joined = (members, of) => ({ mode: isJoined(members, of) ? "lines+markers" : "markers" });
const unjoinedRemark = (series) =>
  series.every((sizes) => sizes.length >= LEAST_JOINED) ? "" : "Points of fewer than three sizes are not joined.";
/* An axis of ratios of times, with its ticks in words. Faster is up on every chart. */
const TICKS = [1, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000];
function ratioAxis(title, ratios) {
  const known = ratios.filter((r) => r != null);
  const farthest = Math.max(1.02, ...known.map((r) => Math.max(r, 1 / r)));
  const shown = TICKS.filter((t) => t === 1 || (t > farthest ** 0.2 && t <= farthest * 1.5));
  const tickvals = [...shown.map((t) => 1 / t).reverse(), ...shown.slice(1)];
  const factor = (r) => `${Number(Math.max(r, 1 / r).toPrecision(4))}×`;
  const words = (r) => (r === 1 ? "as fast" : `${factor(r)} ${r < 1 ? "faster" : "slower"}`);
  /* Of equal times, Plotly would show a decade to each side, in which these ticks would cover each other. */
  const range = farthest > 1.02 ? { autorange: "reversed" } : { range: [Math.log10(1.03), -Math.log10(1.03)] };
  return { title, type: "log", ...range, tickmode: "array", tickvals, ticktext: tickvals.map(words) };
}
const disturbedRemark = (rows) => {
  const count = rows.filter((r) => r.disturbed).length;
  return count ? `Hollow symbols: ${count} time${count === 1 ? "" : "s"} that other programs disturbed.` : "";
};
/* Two times of which one is disturbed have no ratio. */
const ratioOf = (row, other) => (row.disturbed || other.disturbed ? null : row.time_s / other.time_s);
const leftOut = (count) =>
  count ? `${count} ratio${count === 1 ? " is" : "s are"} left out because a time is disturbed.` : "";

const threadsOf = (row) => (row.threads == null ? "" : `, ${row.threads} thread${row.threads === 1 ? "" : "s"}`);
const plainLines = (lines) => lines.filter(Boolean).map(format.plain).join("<br>");

function hoverText(row) {
  return plainLines([
    row.title,
    `${row.library}, ${row.precision}${threadsOf(row)}`,
    row.time_s != null && (row.disturbed ? `${format.time(row)}, disturbed` : `${format.seconds(row.time_s)} ${format.interval(row)}`),
    row.ratioText,
    format.rate(row, "flop_per_s") != null && format.flop(row.flop_per_s, "/s"),
    row.limited_by && !row.disturbed && `${row.limited_by}: ${format.shareOfLimit(row)}`,
    row.command,
  ]);
}

/* The marker of a series that is no library. */
const markerOf = (i) => ({ color: OTHER_COLORS[i % OTHER_COLORS.length], symbol: SYMBOLS[i % SYMBOLS.length] });

function groupBy(rows, keyOf) {
  const groups = new Map();
  for (const row of rows) {
    const key = keyOf(row);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  return groups;
}

/* What the table of a chart says about each of its points, besides its numbers. */
const columnsOf = (rows) => ({
  case: rows.map((r) => r.case ?? r.title),
  library: rows.map((r) => r.library),
  precision: rows.map((r) => r.precision),
  threads: rows.map((r) => r.threads),
  disturbed: rows.map((r) => (r.disturbed ? "yes" : "")),
});

/* One trace per library, and per text that `restOf` returns: lines of equal dashes have the same rest. */
function traces(rows, restOf, xOf, yOf, more = {}) {
  const nameOf = (r) => {
    const library = libraryOf(r.library);
    return [library, [r.library.slice(library.length).trim(), restOf?.(r)].filter(Boolean).join(" ")];
  };
  const groups = [...groupBy(rows, (r) => JSON.stringify(nameOf(r))).values()];
  const order = (a, b) => collator.compare(a[0], b[0]) || collator.compare(a[1], b[1]);
  groups.sort((a, b) => order(nameOf(a[0]), nameOf(b[0])));
  /* What most points have in common has solid lines. */
  const byRest = [...groupBy(rows, (r) => nameOf(r)[1])].sort(([, a], [, b]) => b.length - a.length);
  const rests = byRest.map(([rest]) => rest);
  return groups.map((members) => {
    const [library, rest] = nameOf(members[0]),
      { color, symbol } = libraryStyle(library);
    return {
      type: "scatter",
      mode: "markers",
      name: format.plain(rest ? `${library} ${rest}` : library),
      x: members.map(xOf),
      y: members.map(yOf),
      text: members.map(hoverText),
      hoverinfo: "text",
      customdata: members.map((r) => r.id),
      meta: { columns: columnsOf(members) },
      line: { color, width: 2, dash: DASHES[rests.indexOf(rest) % DASHES.length] },
      marker: {
        color,
        /* A hollow symbol is a time that other programs disturbed. */
        symbol: members.map((r) => symbol + (r.disturbed ? "-open" : "")),
        size: 8,
        opacity: 0.85,
        line: { width: members.map((r) => (r.disturbed ? 1.5 : 0.5)), color: styleOf("--back") },
      },
      ...(typeof more === "function" ? more(members) : more),
    };
  });
}

/* Bars from `low` to `high` around each value: 95 % confidence intervals. Rows without an interval have none. */
const intervals = (rows, value, low, high) => ({
  error_y: {
    type: "data",
    symmetric: false,
    thickness: 1,
    width: 2,
    array: rows.map((r) => (r.low_s && r.high_s ? Math.max(0, high(r) - value(r)) : 0)),
    arrayminus: rows.map((r) => (r.low_s && r.high_s ? Math.max(0, value(r) - low(r)) : 0)),
  },
});
/* The longest time of an interval is the lowest rate. */
const rateBars = (rows, { scale, of }) =>
  intervals(
    rows,
    of,
    (r) => r.flop / r.high_s / scale,
    (r) => r.flop / r.low_s / scale,
  );

const timed = (rows) => rows.filter((r) => MEASURED.includes(r.status) && r.time_s != null);
const computed = (rows) => timed(rows).filter((r) => r.flop_per_s && !r.ranks); // collectives have their own charts
/* The shortest time of a problem: also where no other library has one, and where disturbed times leave the order open. */
const isFastest = (row) => ["fastest", "only", "open"].includes(row.position);
/* The words of a title that are settings, such as place=in. */
const settingsOf = (row) =>
  row.title
    .split(" ")
    .filter((w) => w.includes("="))
    .map((w) => ` ${w}`)
    .join("");
/* The choice of an operation among those that have such a row. */
const operationsOf = (rows, has) => [["op", "Operation", distinct(timed(rows).filter(has).map((r) => r.op))]];
const collectiveName = (r) => `${r.ranks} ranks ${r.precision}${settingsOf(r)}`;
/* All values or one of them; a single value is no choice. */
const allOrOne = (values) => {
  const different = distinct(values);
  return different.length > 1 ? ["all", ...different] : ["all"];
};
/* Choices of an operation and a precision among the rows of a chart. */
const kindsOf = (rows) => [
  ["kernels", "Kernels", allOrOne(rows.map((r) => r.op))],
  ["precision", "Precision", allOrOne(rows.map((r) => r.precision))],
];
const ofKind = (rows, selected) =>
  rows.filter(
    (r) =>
      (selected.kernels === "all" || r.op === selected.kernels) &&
      (selected.precision === "all" || r.precision === selected.precision),
  );
/* A choice of libraries: all, two of them, or one. Texts are JSON, because a name may contain any separator. */
const MOST_IN_PAIRS = 6;
function librariesOf(rows) {
  const names = [...groupBy(rows, (r) => r.library)].sort((a, b) => b[1].length - a[1].length).map(([name]) => name);
  const some = names.slice(0, MOST_IN_PAIRS);
  const pairs = some.flatMap((a, i) => some.slice(i + 1).map((b) => [a, b]));
  const option = (chosen) => [JSON.stringify(chosen), chosen.join(" and ")];
  const first = names.length > MOST_AT_FIRST ? [["fastest", "the three with the highest rates"]] : [];
  return names.length > 1
    ? [...first, ["all", "all"], ...[...pairs, ...names.map((n) => [n])].map(option)]
    : [["all", "all"]];
}
/* Libraries of a chart before anybody chooses: more series would hide each other. */
const MOST_AT_FIRST = 3;
function fastestLibraries(rows) {
  const best = [...groupBy(rows, (r) => r.library)].map(([name, members]) => [
    name,
    Math.max(...members.map((r) => r.flop_per_s)),
  ]);
  return best.sort(([, a], [, b]) => b - a).map(([name]) => name).slice(0, MOST_AT_FIRST);
}
function ofLibraries(rows, selected) {
  if (selected === "all") return rows;
  const chosen = new Set(selected === "fastest" ? fastestLibraries(rows) : JSON.parse(selected));
  return rows.filter((r) => chosen.has(r.library));
}
/* One precision, that of most rows first, or all of them. */
function onePrecision(rows) {
  const groups = [...groupBy(rows, (r) => r.precision)].sort(([, a], [, b]) => b.length - a.length);
  const names = groups.map(([name]) => name);
  return names.length > 1 ? [...names, "all"] : ["all"];
}
/* Cases with the same key differ in precision or library only. */
const problemKey = (r) => `${r.op}|${r.title}|${r.device}|${r.threads}`;
const thinned = (rows) => {
  const step = Math.ceil(rows.length / MOST_POINTS);
  return step > 1 ? rows.filter((_, i) => i % step === 0) : rows;
};
const lineTrace = (x, y, name, more = {}) => ({
  type: "scatter",
  mode: "lines",
  x,
  y,
  name: format.plain(name),
  hoverinfo: "name",
  line: { color: styleOf("--soft"), width: 1.5, dash: "dash" },
  ...more,
});
const lineAtOne = (xs, name) => lineTrace([Math.min(...xs), Math.max(...xs)], [1, 1], name);

/* The fastest case of each problem in another precision than f32, with its ratio to the one in f32. */
function comparedWithF32(rows) {
  const byProblem = new Map();
  timed(rows)
    .filter((r) => isFastest(r) && r.flop)
    .forEach((r) => {
      const byPrecision = byProblem.get(problemKey(r)) || new Map();
      const known = byPrecision.get(r.precision);
      if (!known || r.time_s < known.time_s) byPrecision.set(r.precision, r);
      byProblem.set(problemKey(r), byPrecision);
    });
  return [...byProblem.values()]
    .filter((byPrecision) => byPrecision.has("f32"))
    .flatMap((byPrecision) =>
      [...byPrecision.values()]
        .filter((r) => r.precision !== "f32")
        .map((r) => {
          const ratio = ratioOf(r, byPrecision.get("f32"));
          return { ...r, ratio, ratioText: format.speedSentence(r.precision, ratio, "f32") };
        }),
    );
}

/* The cases through a framework, with their ratio to the fastest library that is called directly. */
function comparedWithDirect(rows) {
  const key = (r) => `${problemKey(r)}|${r.precision}`,
    fastest = new Map();
  timed(rows)
    .filter((r) => !r.framework)
    .forEach((r) => {
      if (!fastest.has(key(r)) || r.time_s < fastest.get(key(r)).time_s) fastest.set(key(r), r);
    });
  return timed(rows)
    .filter((r) => r.framework && fastest.has(key(r)))
    .map((r) => {
      const direct = fastest.get(key(r)),
        ratio = ratioOf(r, direct);
      const ratioText = format.speedSentence(r.library, ratio, direct.library);
      return { ...r, directTime: direct.time_s, ratio, ratioText };
    });
}

/* Sparse products that have a dense product of their shape. */
const comparedWithDense = (rows) =>
  timed(rows)
    .filter((r) => r.size != null && (r.time_over_baseline != null || r.baseline_withheld))
    .map((r) => ({
      ...r,
      ratio: r.time_over_baseline,
      ratioText: r.time_over_baseline == null ? "" : format.speedSentence("it", r.time_over_baseline, "dense"),
    }));
const applicationName = (a, severalThreads = true) =>
  `${a.application} (${a.suite.replace("deepbench/", "")}, ${a.precision}${severalThreads ? threadsOf(a) : ""})`;
const isWhole = (a) => a.time_s != null;
/* Ticks of an axis of times from zero, with their units: besides zero two or three, or one where there is no room. */
function timeTicks(most_s, least = 2) {
  const power = 10 ** Math.floor(Math.log10(most_s / least));
  const step = power * [5, 4, 3, 2, 1.5, 1].find((factor) => factor * power <= most_s / least);
  const tickvals = Array.from({ length: Math.floor(most_s / step) + 1 }, (_, i) => Number((i * step).toPrecision(3)));
  const words = (v) => format.seconds(v).replace(/^[\d.]+/, (digits) => Number(digits));
  return { tickvals, ticktext: tickvals.map((v) => (v ? words(v) : "0")), tickangle: 0 };
}
/* A text in lines that fit above a chart on a phone. */
const MOST_IN_LINE = 38;
function lineBroken(text) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = [lines.at(-1), word].filter(Boolean).join(" ");
    if (longer.length <= MOST_IN_LINE || !lines.at(-1)) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}
const stepsOf = (file, selected) => (file.steps ?? []).find((s) => s.title === selected.model)?.steps ?? [];
const networkOf = (file, selected) => (file.networks ?? []).find((n) => n.title === selected.network);
/* The name of a bar of a step, in lines that fit below it. */
const barName = (r) => r.name.replace(" library of ", " library<br>of ");
const devicesOf = (s) => `${s.devices} device${s.devices === 1 ? "" : "s"}`;
const byOperation = (a) =>
  Object.entries(a.by_op_s)
    .sort(([, s], [, t]) => t - s)
    .map(([op, s]) => `${op} ${format.percent(s / a.sum_s)}`);

/* `choices` are [name, label, options]; `rows` are those that a chart shows; `draw` returns traces and layout. */
const CHARTS = [
  {
    id: "roofline",
    title: "Roofline",
    wide: true,
    tall: true,
    text:
      "Rate against arithmetic intensity. Colors and symbols are libraries. Lines are measured limits: the peak rate " +
      "of each precision, and the bandwidth of each level of memory. A kernel far below all lines is limited by " +
      "something else. A convolution may exceed a line, because its rate counts work that some algorithms avoid.",
    choices: (rows, file) => [
      [
        "limits",
        "Limits of",
        file.limits.map((l, i) => [String(i), `${{ cpu: "CPU", cuda: "GPU", hip: "GPU" }[l.device] ?? l.device}${threadsOf(l)}`]),
      ],
      [
        "libraries",
        "Show",
        [
          ["fastest", "fastest library"],
          ["all", "all libraries"],
        ],
      ],
      ...kindsOf(computed(rows)),
    ],
    rows: (rows, selected, file) => {
      const limits = file.limits[selected.limits];
      return ofKind(computed(rows), selected).filter(
        (r) =>
          r.device === limits.device &&
          r.threads === limits.threads &&
          r.flop_per_byte &&
          (selected.libraries === "all" || isFastest(r)),
      );
    },
    draw(rows, selected, file) {
      const xs = rows.map((r) => r.flop_per_byte),
        low = Math.min(...xs) / 2,
        high = Math.max(...xs) * 2;
      const limits = file.limits[selected.limits],
        unit = rateUnit(rows);
      const peaks = Object.entries(limits.peaks).filter(
        ([p]) => selected.precision === "all" || p === selected.precision,
      );
      const top = Math.max(...peaks.map(([, v]) => v), 0);
      const points = traces(rows, null, (r) => r.flop_per_byte, unit.of);
      const rateText = (v) => `${format.significant(v / unit.scale)} ${unit.scale === 1e12 ? "TFLOP/s" : "GFLOP/s"}`;
      const markOf = (names) => (names.some((n) => limits.disturbed.includes(n)) ? " (probe disturbed, too low)" : "");
      const lines = peaks.map(([p, v], i) =>
        lineTrace([low, high], [v / unit.scale, v / unit.scale], `${p} peak: ${rateText(v)}${markOf([p])}`, {
          line: { color: styleOf("--front"), width: 1.5, dash: DASHES[i % DASHES.length] },
        }),
      );
      /* Levels with nearly equal bandwidths share a line. */
      const levels = new Map();
      Object.entries(limits.memory).forEach(([level, rate]) => {
        const near = [...levels.keys()].find((k) => Math.abs(k / rate - 1) < 0.03) ?? rate;
        levels.set(near, [...(levels.get(near) || []), level]);
      });
      [...levels].forEach(([rate, names], i) => {
        const end = Math.min(high, top / rate);
        if (end > low)
          lines.push(
            lineTrace(
              [low, end],
              [(rate * low) / unit.scale, (rate * end) / unit.scale],
              `${names.join(", ")}: ${format.giga(rate)} GB/s${markOf(names)}`,
              { line: { color: styleOf("--soft"), width: 1.5, dash: DASHES[i % DASHES.length] } },
            ),
          );
      });
      return [
        [...points, ...lines],
        layoutOf(
          log(INTENSITY, { ...PLAIN, ...ticksOf(xs) }),
          log(unit.title, { ...PLAIN, ...ticksOf([...rows.map(unit.of), top / unit.scale || unit.of(rows[0])]) }),
        ),
      ];
    },
  },
  {
    id: "family",
    title: "Rate by problem size",
    text:
      "Rate against the one size in which the problems of a family differ. Vertical bars are 95 % confidence " +
      "intervals.",
    choices: (rows) => {
      const sizes = new Map();
      computed(rows)
        .filter((r) => r.family)
        .forEach((r) => sizes.set(r.family, (sizes.get(r.family) || new Set()).add(r.size)));
      /* Of families with as many sizes, matrix products come first, because most readers look for them. */
      const isProduct = (f) => f.startsWith("gemm ");
      const families = [...sizes]
        .filter(([, s]) => s.size > 1)
        .sort(([f, a], [g, b]) => b.size - a.size || isProduct(g) - isProduct(f))
        .map(([f]) => f)
        .slice(0, MOST_FAMILIES);
      const members = computed(rows).filter((r) => families.includes(r.family));
      const titles = new Map(members.map((r) => [r.family, `${r.op} ${r.familyTitle}`]));
      return [
        ["family", "Family", families.map((f) => [f, titles.get(f)])],
        ["libraries", "Libraries", librariesOf(members)],
        ["precision", "Precision", onePrecision(members)],
      ];
    },
    rows: (rows, selected) =>
      ofLibraries(
        computed(rows).filter(
          (r) =>
            r.family &&
            r.family === selected.family &&
            (selected.precision === "all" || r.precision === selected.precision),
        ),
        selected.libraries,
      ),
    remarks(rows, selected) {
      const shown = this.rows(rows, selected);
      const series = groupBy(shown, (r) => JSON.stringify([r.library, r.precision, r.threads])).values();
      const sizes = [...series].map((members) => distinct(members.map((r) => r.size)));
      return [unjoinedRemark(sizes), disturbedRemark(shown)];
    },
    draw(rows) {
      const sorted = [...rows].sort((a, b) => a.size - b.size),
        unit = rateUnit(rows),
        severalThreads = distinct(rows.map((r) => r.threads)).length > 1;
      return [
        traces(
          sorted,
          (r) => `${r.precision}${severalThreads ? threadsOf(r) : ""}`,
          (r) => r.size,
          unit.of,
          (members) => ({ ...joined(members, (r) => r.size), ...rateBars(members, unit) }),
        ),
        layoutOf({ title: sweepTitle(rows[0]), ...SIZES }, { title: unit.title, rangemode: "tozero" }),
      ];
    },
  },
  {
    id: "fastest",
    title: "Fastest library by problem",
    text:
      "Each point is a problem; its color and symbol show the fastest library, also where the difference from others " +
      "is within the uncertainty.",
    choices(rows) {
      const winners = new Map(),
        competitors = new Map();
      const add = (map, r) => {
        const kind = `${r.op} ${r.precision} ${r.direction}`;
        map.set(kind, (map.get(kind) || new Set()).add(r.backend));
      };
      computed(rows).forEach((r) => {
        add(competitors, r);
        if (isFastest(r)) add(winners, r);
      });
      const kinds = [...competitors].filter(([, names]) => names.size > 1).map(([kind]) => kind);
      return [["kind", "Operation", kinds.sort((a, b) => (winners.get(b)?.size || 0) - (winners.get(a)?.size || 0))]];
    },
    rows: (rows, selected) =>
      computed(rows).filter(
        (r) => isFastest(r) && r.flop_per_byte && `${r.op} ${r.precision} ${r.direction}` === selected.kind,
      ),
    draw: (rows) => [
      traces(
        rows,
        null,
        (r) => r.flop,
        (r) => r.flop_per_byte,
      ),
      layoutOf(log(WORK), log(INTENSITY, PLAIN)),
    ],
  },
  {
    id: "precision",
    title: "Speed-up from lower precision",
    text:
      "Speed of other precisions compared with f32, each with its fastest library. Colors and symbols are the " +
      "library of the other precision.",
    choices: (rows) => kindsOf(comparedWithF32(rows)),
    rows: (rows, selected) => ofKind(comparedWithF32(rows), selected).filter((r) => r.ratio != null),
    remarks: (rows, selected) =>
      [leftOut(ofKind(comparedWithF32(rows), selected).filter((r) => r.ratio == null).length)].filter(Boolean),
    draw: (rows) => [
      [
        ...traces(
          rows,
          null,
          (r) => r.flop,
          (r) => r.ratio,
        ),
        lineAtOne(
          rows.map((r) => r.flop),
          "as fast as f32",
        ),
      ],
      layoutOf(
        log(WORK),
        ratioAxis(
          "speed compared with f32",
          rows.map((r) => r.ratio),
        ),
        { meta: { y: "time over time in f32 (ratio)" } },
      ),
    ],
  },
  {
    id: "sparse",
    title: "Sparse versus dense",
    text: "Speed of sparse products compared with the fastest dense product of the same shape.",
    choices(rows) {
      const sizesOf = (members) => distinct(members.map((r) => (r.ratio == null ? null : r.size))).length;
      const families = [...groupBy(comparedWithDense(rows), (r) => r.family)];
      families.sort(([, a], [, b]) => sizesOf(b) - sizesOf(a));
      return [["family", "Family", families.map(([family, members]) => [family, members[0].familyTitle])]];
    },
    rows: (rows, selected) =>
      comparedWithDense(rows).filter((r) => r.ratio != null && r.family === selected.family),
    remarks(rows, selected) {
      const all = comparedWithDense(rows).filter((r) => r.family === selected.family),
        known = all.filter((r) => r.ratio != null);
      const series = groupBy(known, (r) => JSON.stringify([r.library, r.precision, r.threads])).values();
      return [
        unjoinedRemark([...series].map((members) => distinct(members.map((r) => r.size)))),
        leftOut(all.length - known.length),
      ];
    },
    draw(rows) {
      const sorted = [...rows].sort((a, b) => a.size - b.size);
      const severalThreads = distinct(rows.map((r) => r.threads)).length > 1;
      const points = traces(
        sorted,
        (r) => `${r.precision}${severalThreads ? threadsOf(r) : ""}`,
        (r) => r.size,
        (r) => r.ratio,
        (members) => joined(members, (r) => r.size),
      );
      const line = lineAtOne(
        rows.map((r) => r.size),
        "as fast as dense",
      );
      const ratios = rows.map((r) => r.ratio);
      return [
        [...points, line],
        layoutOf({ title: sweepTitle(rows[0]), ...SIZES }, ratioAxis("speed compared with dense", ratios), {
          meta: { y: "time over time of the dense product (ratio)" },
        }),
      ];
    },
  },
  {
    id: "framework",
    title: "Framework overhead",
    text: "Speed of a framework, such as PyTorch, compared with the fastest library that is called directly.",
    choices: (rows) => kindsOf(comparedWithDirect(rows)),
    rows: (rows, selected) => ofKind(comparedWithDirect(rows), selected).filter((r) => r.ratio != null),
    remarks: (rows, selected) =>
      [leftOut(ofKind(comparedWithDirect(rows), selected).filter((r) => r.ratio == null).length)].filter(Boolean),
    draw(rows) {
      const times = rows.map((r) => r.directTime * 1e6);
      const points = traces(
        rows,
        null,
        (r) => r.directTime * 1e6,
        (r) => r.ratio,
      );
      const ratios = rows.map((r) => r.ratio);
      return [
        [...points, lineAtOne(times, "as fast")],
        layoutOf(log("time of the fastest library (µs)"), ratioAxis("speed compared with the library", ratios), {
          meta: { y: "time over time of the fastest library (ratio)" },
        }),
      ];
    },
  },
  {
    id: "applications",
    title: "Kernel time by application",
    wide: true,
    text:
      "Each kernel of the application once, or as often as a model calls it, with its fastest library. This is a sum " +
      "of kernels, not the time of a network. Each application has its own axis.",
    choices: (_, file) => [
      [
        "suite",
        "Suite",
        distinct(file.applications.filter((a) => a.sum_s != null).map((a) => a.suite)).map((suite) => [
          suite,
          suite.replace("deepbench/", ""),
        ]),
      ],
    ],
    /* Sums over some of the kernels come last, because nobody should compare them with whole ones. */
    rows: (_, selected, file) =>
      file.applications
        .filter((a) => a.sum_s != null && a.suite === selected.suite)
        .sort((a, b) => isWhole(b) - isWhole(a)),
    remarks(_, selected, file) {
      const ofSuite = file.applications.filter((a) => a.sum_s != null && a.suite === selected.suite);
      return [
        ofSuite.some((a) => isWhole(a) && a.disturbed) &&
          "Dotted bars contain times that other programs disturbed.",
        ofSuite.some((a) => !isWhole(a)) &&
          "Hatched bars are sums over some of the kernels, because the others have no time: the whole takes longer.",
      ].filter(Boolean);
    },
    /* A panel with its own axis per application, because one may take a thousand times as long as another. */
    draw(rows) {
      const severalThreads = distinct(rows.map((a) => a.threads)).length > 1;
      const nameOf = (a) => format.plain(applicationName(a, severalThreads));
      const tickOf = (a) => format.plain(a.precision + (severalThreads ? threadsOf(a) : ""));
      const detailsOf = (a) =>
        format.plain(
          [`${a.application}: ${format.seconds(a.sum_s)}`, `${a.measured} of ${a.kernels} kernels`, ...byOperation(a)].join(", "),
        );
      const labelOf = (a) =>
        (isWhole(a) ? format.time(a) : `≥ ${format.seconds(a.sum_s)}`) +
        (isWhole(a) ? "" : `<br>${a.measured} of ${a.kernels} kernels`) +
        (a.disturbed ? `, ${a.disturbed} disturbed` : "");
      const labels = rows.flatMap((a) => labelOf(a).split("<br>"));
      const longest = Math.max(...labels.map((label) => label.length));
      const color = styleOf("--soft"),
        back = styleOf("--back");
      const kinds = [
        ["all kernels", "", (a) => isWhole(a) && !a.disturbed],
        ["all kernels, some times disturbed", ".", (a) => isWhole(a) && a.disturbed],
        ["a part of the kernels", "/", (a) => !isWhole(a)],
      ];
      const barsOf = (members, [name, shape], axes) => ({
        type: "bar",
        orientation: "h",
        name,
        legendgroup: name,
        ...axes,
        y: members.map(nameOf),
        x: members.map((a) => a.sum_s),
        width: 0.6,
        meta: {
          columns: {
            precision: members.map((a) => a.precision),
            threads: members.map((a) => a.threads),
            kernels: members.map((a) => a.kernels),
            "kernels with a time": members.map((a) => a.measured),
            "kernels with a disturbed time": members.map((a) => a.disturbed),
          },
        },
        marker: {
          color,
          line: { color, width: 1 },
          pattern: { shape, fgcolor: color, bgcolor: back, size: 7, solidity: 0.35 },
        },
        hoverinfo: "text",
        text: members.map(labelOf),
        textposition: "outside",
        constraintext: "none",
        cliponaxis: false,
        hovertext: members.map(detailsOf),
      });
      const panels = [...groupBy(rows, (a) => `${isWhole(a) ? "" : "part of "}${a.application}`).values()];
      const titles = panels.map(([a]) => lineBroken(isWhole(a) ? a.application : `${a.application} (a part)`));
      /* Heights in rows: a panel has its title, its bars and the labels of its axis. */
      const heights = panels.map((members, i) => titles[i].length + members.length + 1.2);
      const all = heights.reduce((sum, height) => sum + height, 0);
      let top = 0;
      const drawn = panels.map((members, i) => {
        const number = i ? i + 1 : "",
          upper = 1 - (top + titles[i].length) / all,
          lower = 1 - (top + titles[i].length + members.length) / all;
        top += heights[i];
        const axes = { xaxis: `x${number}`, yaxis: `y${number}` };
        const { xaxis, yaxis } = layoutOf(
          {
            title: i === panels.length - 1 ? "total time of the kernels" : "",
            rangemode: "tozero",
            anchor: axes.yaxis,
            tickmode: "array",
            /* The words next to the bars take most of the width of a phone. */
            ...timeTicks(Math.max(...members.map((a) => a.sum_s)), phone.matches ? 1 : 2),
          },
          {
            autorange: "reversed",
            domain: [lower, upper],
            anchor: axes.xaxis,
            categoryorder: "array",
            categoryarray: members.map(nameOf),
            tickmode: "array",
            tickvals: members.map(nameOf),
            ticktext: members.map(tickOf),
          },
        );
        const title = {
          text: titles[i].map(format.plain).join("<br>"),
          ...{ xref: "paper", yref: "paper", x: 0, y: upper, xanchor: "left", yanchor: "bottom" },
          ...{ align: "left", showarrow: false },
        };
        const bars = kinds.map((kind) => barsOf(members.filter(kind[2]), kind, axes)).filter((trace) => trace.x.length);
        return { bars, title, axes: { [`xaxis${number}`]: xaxis, [`yaxis${number}`]: yaxis } };
      });
      /* One entry of the legend per kind. */
      const bars = drawn.flatMap((panel) => panel.bars);
      bars.forEach((trace, i) => {
        trace.showlegend = bars.findIndex((other) => other.name === trace.name) === i;
      });
      return [
        bars,
        layoutOf({}, {}, {
          ...Object.assign({}, ...drawn.map((panel) => panel.axes)),
          annotations: drawn.map((panel) => panel.title),
          barmode: "overlay",
          height: 70 + 36 * all,
          margin: { l: 20, r: 20 + 7 * longest, t: 32, b: 50 },
          meta: { x: "total time of the kernels (s)", y: "application", bars: 0.7 * all, longest },
        }),
      ];
    },
  },
  {
    id: "steps",
    title: "Training step by devices",
    text:
      "The kernels of one device, and then the all-reduce of the gradients: a sum of calls one after the other, not a " +
      "measured step. The batch is that of all devices together.",
    choices: (_, file) => [["model", "Model", (file.steps ?? []).map((s) => s.title)]],
    rows: (_, selected, file) => stepsOf(file, selected).filter((s) => s.one_after_the_other),
    remarks: (_, selected, file) =>
      stepsOf(file, selected).flatMap((s) => [
        s.withheld && `No step on ${devicesOf(s)}: ${s.withheld}.`,
        !s.withheld && s.disturbed && `A time of the step on ${devicesOf(s)} is disturbed.`,
        !s.withheld && s.all_reduce?.how === "predicted" && `Predicted on ${devicesOf(s)}: ${s.all_reduce.about}.`,
      ]),
    draw(rows) {
      const parts = [
        ["kernels", 0, "", (s) => s.one_device.seconds, () => true],
        ...["measured", "predicted"].map((how) => [
          ...[`all-reduce, ${how}`, 1, how === "predicted" ? "/" : ""],
          ...[(s) => s.all_reduce.time.seconds, (s) => s.all_reduce?.how === how],
        ]),
      ];
      const back = styleOf("--back");
      const bars = parts.map(([name, at, shape, of, has]) => {
        const members = rows.filter(has),
          color = OTHER_COLORS[at];
        return {
          type: "bar",
          name,
          x: members.map(devicesOf),
          y: members.map(of),
          meta: {
            columns: {
              "batch of each device": members.map((s) => s.batch / s.devices),
              precision: members.map((s) => s.precision),
              threads: members.map((s) => s.threads),
              disturbed: members.map((s) => (s.disturbed ? "yes" : "no")),
            },
          },
          marker: {
            color,
            line: { color, width: 1 },
            pattern: { shape, fgcolor: color, bgcolor: back, size: 7, solidity: 0.35 },
          },
          hoverinfo: "text",
          hovertext: members.map((s) => `${devicesOf(s)}, ${name}: ${format.seconds(of(s))}`),
        };
      });
      const most_s = Math.max(...rows.map((s) => s.one_after_the_other.seconds));
      const labels = rows.map((s) => ({
        ...{ x: devicesOf(s), y: s.one_after_the_other.seconds, showarrow: false, yanchor: "bottom" },
        text: format.seconds(s.one_after_the_other.seconds) + (s.disturbed ? "<br>disturbed" : ""),
      }));
      return [
        bars.filter((trace) => trace.x.length),
        layoutOf(
          { type: "category", categoryorder: "array", categoryarray: rows.map(devicesOf) },
          { title: "time of the step", rangemode: "tozero", tickmode: "array", ...timeTicks(1.1 * most_s) },
          { barmode: "stack", annotations: labels, meta: { x: "devices", y: "time (s)" } },
        ),
      ];
    },
  },
  {
    id: "networks",
    title: "Step of a network",
    text:
      "The predicted time of one step as the sum of its kernels, of other operators and of the overhead of the " +
      "framework, next to the step as it was measured. Lines are 95 % intervals.",
    choices: (_, file) => [["network", "Network", (file.networks ?? []).map((n) => n.title)]],
    rows: (_, selected, file) => networkOf(file, selected)?.bars ?? [],
    remarks: (_, selected, file) => networkOf(file, selected)?.remarks ?? [],
    draw(rows) {
      const names = distinct(rows.flatMap((r) => Object.keys(r.parts))).filter((name) => rows.some((r) => r.parts[name]));
      const back = styleOf("--back");
      const bars = names.map((name, at) => {
        const members = rows.filter((r) => r.parts[name]);
        const color = name === "measured" ? styleOf("--soft") : OTHER_COLORS[at % OTHER_COLORS.length];
        const shape = at < OTHER_COLORS.length ? "" : "/";
        return {
          type: "bar",
          name,
          x: members.map((r) => barName(r)),
          y: members.map((r) => r.parts[name]),
          meta: { columns: { disturbed: members.map((r) => (r.disturbed ? "yes" : "no")) } },
          marker: {
            color,
            line: { color, width: 1 },
            pattern: { shape, fgcolor: color, bgcolor: back, size: 7, solidity: 0.35 },
          },
          hoverinfo: "text",
          hovertext: members.map(
            (r) => `${r.name}, ${name}: ${format.seconds(r.parts[name])}, ${format.percent(r.parts[name] / r.seconds)}`,
          ),
        };
      });
      const whole = {
        type: "scatter",
        mode: "markers",
        name: "whole step",
        showlegend: false,
        x: rows.map(barName),
        y: rows.map((r) => r.seconds),
        meta: { columns: { disturbed: rows.map((r) => (r.disturbed ? "yes" : "no")) } },
        marker: { symbol: "line-ew-open", size: 12, color: styleOf("--front") },
        hoverinfo: "skip",
        error_y: {
          type: "data",
          symmetric: false,
          color: styleOf("--front"),
          thickness: 1.5,
          width: 6,
          array: rows.map((r) => (r.high_s == null ? 0 : r.high_s - r.seconds)),
          arrayminus: rows.map((r) => (r.low_s == null ? 0 : r.seconds - r.low_s)),
        },
      };
      const most_s = Math.max(...rows.map((r) => r.high_s ?? r.seconds));
      const labels = rows.map((r) => ({
        ...{ x: barName(r), y: r.high_s ?? r.seconds, showarrow: false, yanchor: "bottom" },
        text: format.seconds(r.seconds) + (r.disturbed ? "<br>disturbed" : ""),
      }));
      return [
        [...bars, whole],
        layoutOf(
          { type: "category", categoryorder: "array", categoryarray: rows.map(barName), tickangle: 0 },
          { title: "time of the step", rangemode: "tozero", tickmode: "array", ...timeTicks(1.1 * most_s) },
          { barmode: "stack", annotations: labels, meta: { x: "step", y: "time (s)" } },
        ),
      ];
    },
  },
  {
    id: "latency",
    title: "All-reduce time",
    text: "Time of an all-reduce, or another collective, against the bytes of each rank.",
    choices: (rows) => operationsOf(rows, (r) => r.bus_bytes_per_s || r.ranks),
    rows: (rows, selected) =>
      timed(rows)
        .filter((r) => r.ranks && r.op === selected.op)
        .sort((a, b) => a.bytes - b.bytes),
    draw: (rows) => [
      traces(
        rows,
        collectiveName,
        (r) => r.bytes,
        (r) => r.time_s * 1e6,
        (members) => ({
          ...joined(members, (r) => r.bytes),
          ...intervals(
            members,
            (r) => r.time_s * 1e6,
            (r) => r.low_s * 1e6,
            (r) => r.high_s * 1e6,
          ),
        }),
      ),
      layoutOf(log("size of the message (bytes)"), log("time (µs)")),
    ],
  },
  {
    id: "bus",
    title: "All-reduce bus bandwidth",
    text: "Bus bandwidth, as nccl-tests defines it, against the bytes of each rank.",
    choices: (rows) => operationsOf(rows, (r) => r.bus_bytes_per_s),
    rows: (rows, selected) =>
      timed(rows)
        .filter((r) => r.bus_bytes_per_s && r.op === selected.op)
        .sort((a, b) => a.bytes - b.bytes),
    draw: (rows) => [
      traces(
        rows,
        collectiveName,
        (r) => r.bytes,
        (r) => r.bus_bytes_per_s / 1e9,
        (members) => joined(members, (r) => r.bytes),
      ),
      layoutOf(log("size of the message (bytes)"), log("bus bandwidth (GB/s)", PLAIN)),
    ],
  },
];

/* A choice may leave nothing to draw, such as a library that has no case of a family. */
function nothing() {
  const text = "No case has these properties.",
    hidden = { title: "", visible: false };
  const annotations = [{ text, showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5 }];
  return [[], layoutOf(hidden, hidden, { annotations })];
}
for (const chart of CHARTS) {
  const draw = chart.draw;
  chart.draw = (rows, selected, file) => (rows.length ? draw.call(chart, rows, selected, file) : nothing());
}

/* The ratio of each case of a comparison with its interval, sorted. */
function pairChart(pair) {
  const rows = thinned(pair.cases.filter((r) => r.ratio != null).sort((a, b) => a.ratio - b.ratio));
  const placeOf = new Map(pair.cases.map((c, at) => [c, at]));
  const words = format.fasterOrSlower;
  /* Colors of libraries mean libraries, so verdicts have others, and symbols: faster is up. */
  const looks = {
    slower: { color: styleOf("--warn"), symbol: "triangle-down" },
    faster: { color: styleOf("--good"), symbol: "triangle-up" },
    same: { color: styleOf("--soft"), symbol: "circle" },
    undecided: { color: styleOf("--soft"), symbol: "circle-open" },
  };
  const verdicts = pair.published
    ? [null]
    : ["slower", "faster", "same", "undecided"].filter((v) => rows.some((r) => format.verdict(r.verdict) === v));
  const hover = (r) =>
    plainLines([
      r.title || r.case,
      r.precision,
      r.library,
      `${format.seconds(r.first)} and ${format.seconds(r.second)}`,
      format.speedSentence(pair.second, r.ratio, pair.first),
      r.low != null && `95 % interval: ${format.byFactor(r.low, r.high).map(words).join(" to ")}`,
      format.verdict(r.verdict),
      r.notes,
    ]);
  const points = verdicts.map((verdict) => {
    const members = rows.map((r, at) => [r, at]).filter(([r]) => verdict === null || format.verdict(r.verdict) === verdict);
    return {
      type: "scatter",
      mode: "markers",
      name: verdict || "all",
      showlegend: verdict !== null,
      meta: {
        columns: {
          case: members.map(([r]) => r.case ?? r.title),
          library: members.map(([r]) => r.library),
          precision: members.map(([r]) => r.precision),
          [`time of ${pair.first} (s)`]: members.map(([r]) => r.first),
          [`time of ${pair.second} (s)`]: members.map(([r]) => r.second),
        },
      },
      x: members.map(([, at]) => at + 1),
      y: members.map(([r]) => r.ratio),
      customdata: members.map(([r]) => placeOf.get(r)),
      marker: { ...(looks[verdict] ?? looks.same), size: 7 },
      hoverinfo: "text",
      text: members.map(([r]) => hover(r)),
      error_y: {
        type: "data",
        symmetric: false,
        thickness: 1,
        width: 0,
        array: members.map(([r]) => (r.high == null ? 0 : r.high - r.ratio)),
        arrayminus: members.map(([r]) => (r.low == null ? 0 : r.ratio - r.low)),
      },
    };
  });
  return [
    [...points, lineAtOne([0.5, rows.length + 0.5], "as fast")],
    layoutOf(
      { title: "cases, sorted by speed" },
      ratioAxis(
        /* A long name would not fit beside the axis. */
        `speed compared with ${pair.first.length > 30 ? "the first" : pair.first}`,
        rows.flatMap((r) => [r.ratio, r.low, r.high]),
      ),
      { meta: { x: "place", y: `time of ${pair.second} over time of ${pair.first} (ratio)` } },
    ),
  ];
}

/* All samples of a case by process: several modes show as bands. */
function samplesChart(processes, { library, precision, threads }) {
  const points = processes.map((samples, i) => ({
    type: "scatter",
    mode: "markers",
    name: `process ${i + 1}`,
    hoverinfo: "text",
    text: samples.map(format.seconds),
    x: samples.map((_, j) => i + 1 + (samples.length > 1 ? 0.7 * (j / (samples.length - 1) - 0.5) : 0)),
    y: samples.map((s) => s * 1e6),
    showlegend: false,
    marker: { color: styleOf("--soft"), size: 6 },
    meta: {
      columns: {
        library: samples.map(() => library),
        precision: samples.map(() => precision),
        threads: samples.map(() => threads),
      },
    },
  }));
  return [
    points,
    layoutOf(
      { title: "process, samples in order of measurement", dtick: 1 },
      { title: "time per call (µs)" },
    ),
  ];
}
