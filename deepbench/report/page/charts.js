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
    oneDNN: [1, 1],
    OpenBLAS: [2, 2],
    SciPy: [3, 3],
    "C loops": [4, 7],
    PyTorch: [5, 5],
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
    /* Vendors of published results. */
    NVIDIA: [2, 4],
    Intel: [0, 4],
    AMD: [5, 1],
    ARM: [1, 4],
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
const MEASURED = ["ok", "published", "imported"];

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
/* The field in which the problems of a family differ, as the title of an axis. */
function sweepTitle({ op, sweep_field: field }) {
  if (field === "batch") return "batch size";
  return (op === "conv" ? "batch size " : "") + (field?.length === 1 ? field.toUpperCase() : field);
}
/* An axis of ratios of times, with its ticks in words. Faster is up on every chart. */
const TICKS = [1, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000];
function ratioAxis(title, ratios) {
  const known = ratios.filter((r) => r != null);
  const farthest = Math.max(1.02, ...known.map((r) => Math.max(r, 1 / r)));
  const shown = TICKS.filter((t) => t === 1 || (t > farthest ** 0.2 && t <= farthest * 1.5));
  const tickvals = [...shown.map((t) => 1 / t).reverse(), ...shown.slice(1)];
  const factor = (r) => `${Number(Math.max(r, 1 / r).toPrecision(4))}×`;
  const words = (r) => (r === 1 ? "as fast" : `${factor(r)} ${r < 1 ? "faster" : "slower"}`);
  return { title, type: "log", autorange: "reversed", tickmode: "array", tickvals, ticktext: tickvals.map(words) };
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
    row.time_s != null && `${format.seconds(row.time_s)} ${format.interval(row)}${row.disturbed ? ", disturbed" : ""}`,
    row.ratioText,
    row.flop_per_s != null &&
      (row.flop_per_s >= 1e12 ? `${format.tera(row.flop_per_s)} TFLOP/s` : `${format.giga(row.flop_per_s)} GFLOP/s`),
    row.limit && `${row.limit}: ${format.percent(row.share_of_limit)} of the nearest limit`,
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
const isFastest = (row) => row.position === "fastest";
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
  return names.length > 1 ? [["all", "all"], ...[...pairs, ...names.map((n) => [n])].map(option)] : [["all", "all"]];
}
const ofLibraries = (rows, selected) => {
  const chosen = selected === "all" ? null : new Set(JSON.parse(selected));
  return chosen ? rows.filter((r) => chosen.has(r.library)) : rows;
};
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
        file.limits.map((l, i) => [String(i), `${{ cpu: "CPU", cuda: "GPU", hip: "GPU" }[l.device]}${threadsOf(l)}`]),
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
      const lines = peaks.map(([p, v], i) =>
        lineTrace([low, high], [v / unit.scale, v / unit.scale], `${p} peak: ${rateText(v)}`, {
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
              `${names.join(", ")}: ${format.giga(rate)} GB/s`,
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
      "One family of problems, which differ in one size only, for the libraries that you choose. Vertical bars are " +
      "95 % confidence intervals.",
    choices: (rows) => {
      const sizes = new Map();
      computed(rows)
        .filter((r) => r.family)
        .forEach((r) => sizes.set(r.family, (sizes.get(r.family) || new Set()).add(r.size)));
      /* Matrix products come first, because most readers look for them. */
      const isProduct = (f) => f.startsWith("gemm ");
      const families = [...sizes]
        .filter(([, s]) => s.size > 1)
        .sort(([f, a], [g, b]) => isProduct(g) - isProduct(f) || b.size - a.size)
        .map(([f]) => f)
        .slice(0, MOST_FAMILIES);
      const members = computed(rows).filter((r) => families.includes(r.family));
      return [
        ["family", "Family", families],
        ["libraries", "Libraries", librariesOf(members)],
        ["precision", "Precision", allOrOne(members.map((r) => r.precision))],
      ];
    },
    rows: (rows, selected) =>
      ofLibraries(computed(rows), selected.libraries).filter(
        (r) =>
          r.family &&
          r.family === selected.family &&
          (selected.precision === "all" || r.precision === selected.precision),
      ),
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
          (members) => ({ mode: "lines+markers", ...rateBars(members, unit) }),
        ),
        layoutOf({ title: sweepTitle(rows[0]), ...SIZES }, { title: unit.title, rangemode: "tozero" }),
      ];
    },
  },
  {
    id: "fastest",
    title: "Fastest library by problem",
    text:
      "Each point is a problem; its color and symbol show the fastest library. The table marks ties, where " +
      "the difference is within the uncertainty.",
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
      "How much faster or slower another precision is than f32, each with its fastest library. Colors and symbols " +
      "are the library of the other precision.",
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
    text: "How much faster or slower a sparse product is than the fastest dense product of the same shape.",
    rows: (rows) => comparedWithDense(rows).filter((r) => r.ratio != null),
    remarks: (rows) => [leftOut(comparedWithDense(rows).filter((r) => r.ratio == null).length)].filter(Boolean),
    draw(rows) {
      const sorted = [...rows].sort((a, b) => a.size - b.size);
      const points = traces(
        sorted,
        (r) => `${r.precision}${threadsOf(r)} ${r.family.replace(/^sparse_gemm /, "")}`,
        (r) => r.size,
        (r) => r.ratio,
        { mode: "lines+markers" },
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
    text:
      "How much faster or slower a framework, such as PyTorch, is than the fastest library that is called directly.",
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
      "One call of each kernel that a suite lists for the application, each with its fastest library. This is a sum " +
      "of kernels, not the time of a network.",
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
    draw(rows) {
      const severalThreads = distinct(rows.map((a) => a.threads)).length > 1;
      const nameOf = (a) => format.plain(applicationName(a, severalThreads));
      /* Two short lines leave more room for the bars than a long one. */
      const tickOf = (a) =>
        `${format.plain(a.application)}<br>${format.plain(a.precision + (severalThreads ? threadsOf(a) : ""))}`;
      const detailsOf = (a) =>
        format.plain(
          [`${a.application}: ${format.seconds(a.sum_s)}`, `${a.measured} of ${a.kernels} kernels`, ...byOperation(a)].join(", "),
        );
      const labelOf = (a) =>
        (isWhole(a) ? "" : "≥ ") +
        format.seconds(a.sum_s) +
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
      const bars = kinds.map(([name, shape, has]) => {
        const members = rows.filter(has);
        return {
          type: "bar",
          orientation: "h",
          name,
          y: members.map(nameOf),
          x: members.map((a) => a.sum_s),
          width: 0.6,
          meta: {
            columns: {
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
          cliponaxis: false,
          hovertext: members.map(detailsOf),
        };
      });
      return [
        bars.filter((trace) => trace.x.length),
        layoutOf(
          { title: "time of all kernels, one call of each (s)", rangemode: "tozero" },
          {
            title: "",
            autorange: "reversed",
            categoryorder: "array",
            categoryarray: rows.map(nameOf),
            tickmode: "array",
            tickvals: rows.map(nameOf),
            ticktext: rows.map(tickOf),
          },
          {
            barmode: "overlay",
            height: 100 + 44 * rows.length,
            margin: { l: 60, r: 20 + 7 * longest, t: 32, b: 50 },
            meta: { y: "application", bars: rows.length, longest },
          },
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
          mode: "lines+markers",
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
        { mode: "lines+markers" },
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
  const words = format.fasterOrSlower;
  /* Colors of libraries mean libraries, so verdicts have others, and symbols: faster is up. */
  const looks = {
    slower: { color: styleOf("--warn"), symbol: "triangle-down" },
    faster: { color: styleOf("--good"), symbol: "triangle-up" },
    same: { color: styleOf("--soft"), symbol: "circle" },
    "cannot tell": { color: styleOf("--soft"), symbol: "circle-open" },
  };
  const verdicts = pair.published
    ? [null]
    : ["slower", "faster", "same", "cannot tell"].filter((v) => rows.some((r) => r.verdict === v));
  const hover = (r) =>
    plainLines([
      r.title || r.case,
      r.precision,
      r.library,
      `${format.seconds(r.first)} and ${format.seconds(r.second)}`,
      format.speedSentence(pair.second, r.ratio, pair.first),
      r.low != null && `95 % interval: ${words(r.low)} to ${words(r.high)}`,
      r.verdict,
      r.notes,
    ]);
  const points = verdicts.map((verdict) => {
    const members = rows.map((r, at) => [r, at]).filter(([r]) => verdict === null || r.verdict === verdict);
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
      { title: `cases, sorted by the speed of ${pair.second}` },
      ratioAxis(
        /* A long name would not fit beside the axis. */
        `speed compared with ${pair.first.length > 30 ? "the first" : pair.first}`,
        rows.map((r) => r.ratio),
      ),
      { meta: { x: "place", y: `time of ${pair.second} over time of ${pair.first} (ratio)` } },
    ),
  ];
}

/* All samples of a case by process: several modes show as bands. */
function samplesChart(processes) {
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
  }));
  return [
    points,
    layoutOf(
      { title: "process, samples in order of measurement", dtick: 1 },
      { title: "time per call (µs)" },
    ),
  ];
}
