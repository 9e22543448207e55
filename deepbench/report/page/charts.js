"use strict";
/* The charts: each is drawn from rows of the table. */

/* The palette of Okabe and Ito, which people with any color vision can tell apart; symbols differ as well. */
const COLORS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C", "#B8A800"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon"];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
/* More points make a chart slow and no clearer. */
const MOST_POINTS = 3000;
/* Families in the list of one chart. */
const MOST_FAMILIES = 400;

const CONFIG = {
  responsive: true,
  displaylogo: false,
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
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
    title: { text: a.title },
  });
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: front, family: "system-ui, sans-serif", size: 13 },
    margin: { l: 60, r: 15, t: 10, b: 50 },
    hovermode: "closest",
    hoverlabel: { align: "left", bgcolor: styleOf("--panel"), bordercolor: front, font: { color: front } },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
    xaxis: axis(x),
    yaxis: axis(y),
    ...more,
  };
}
const log = (title, more = {}) => ({ title, type: "log", dtick: 1, ...more });
/* Ticks such as 0.01 instead of powers of ten. */
const PLAIN = { tickformat: "~g" };
const SIZES = { type: "log", dtick: "D2", ...PLAIN };
/* An axis of ratios of times, with its ticks in words. Faster is up on every chart. */
const TICKS = [1, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000];
function ratioAxis(title, ratios) {
  const known = ratios.filter((r) => r != null);
  const farthest = Math.max(1.02, ...known.map((r) => Math.max(r, 1 / r)));
  const shown = TICKS.filter((t) => t === 1 || (t > farthest ** 0.12 && t <= farthest * 1.5));
  const tickvals = [...shown.map((t) => 1 / t).reverse(), ...shown.slice(1)];
  const words = (r) => (r === 1 ? "as fast" : `${Number(Math.max(r, 1 / r).toPrecision(4))}× ${r < 1 ? "faster" : "slower"}`);
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
    row.flop_per_s != null && `${format.tera(row.flop_per_s)} TFLOP/s`,
    row.limit && `${row.limit}: ${format.percent(row.share_of_limit)} of the nearest limit`,
    row.command,
  ]);
}

const markerOf = (i) => ({ color: COLORS[i % COLORS.length], symbol: SYMBOLS[i % SYMBOLS.length] });

function groupBy(rows, keyOf) {
  const groups = new Map();
  for (const row of rows) {
    const key = keyOf(row);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  return groups;
}

/* One trace per group of rows, each with its color and symbol. */
function traces(rows, groupOf, xOf, yOf, more = {}) {
  return [...groupBy(rows, groupOf)].map(([group, members], i) => ({
    type: "scatter",
    mode: "markers",
    name: format.plain(group),
    x: members.map(xOf),
    y: members.map(yOf),
    text: members.map(hoverText),
    hoverinfo: "text",
    customdata: members.map((r) => r.id),
    marker: {
      ...markerOf(i),
      /* A hollow symbol is a time that other programs disturbed. */
      symbol: members.map((r) => markerOf(i).symbol + (r.disturbed ? "-open" : "")),
      size: 8,
      opacity: 0.85,
      line: { width: members.map((r) => (r.disturbed ? 1.5 : 0.5)), color: styleOf("--back") },
    },
    ...(typeof more === "function" ? more(members) : more),
  }));
}

/* Error bars of a rate, from the interval of its time. */
const rateBars = (rows) => ({
  error_y: {
    type: "data",
    symmetric: false,
    thickness: 1,
    width: 2,
    array: rows.map((r) => (r.low_s ? r.flop / r.low_s / 1e12 - r.flop_per_s / 1e12 : 0)),
    arrayminus: rows.map((r) => (r.high_s ? r.flop_per_s / 1e12 - r.flop / r.high_s / 1e12 : 0)),
  },
});

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
const collectiveName = (r) => `${r.library} ${r.ranks} ranks ${r.precision}${settingsOf(r)}`;
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
const isWhole = (a) => a.time != null && a.measured === a.kernels;

/* `choices` are [name, label, options]; `rows` are those that a chart shows; `draw` returns traces and layout. */
const CHARTS = [
  {
    id: "roofline",
    title: "Roofline",
    wide: true,
    tall: true,
    text:
      "Rate against arithmetic intensity. Lines are measured limits: the peak rate of each precision, and the " +
      "bandwidth of each level of memory. A kernel far below all lines is limited by something else. A convolution " +
      "may exceed a line, because its rate counts work that some algorithms avoid.",
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
      ["precision", "Precision", ["all", ...distinct(computed(rows).map((r) => r.precision))]],
    ],
    rows: (rows, selected, file) => {
      const limits = file.limits[selected.limits];
      return computed(rows).filter(
        (r) =>
          r.device === limits.device &&
          r.threads === limits.threads &&
          r.flop_per_byte &&
          (selected.libraries === "all" || isFastest(r)) &&
          (selected.precision === "all" || r.precision === selected.precision),
      );
    },
    draw(rows, selected, file) {
      const xs = rows.map((r) => r.flop_per_byte),
        low = Math.min(...xs) / 2,
        high = Math.max(...xs) * 2;
      const limits = file.limits[selected.limits];
      const peaks = Object.entries(limits.peaks).filter(
        ([p]) => selected.precision === "all" || p === selected.precision,
      );
      const top = Math.max(...peaks.map(([, v]) => v), 0);
      const points = traces(
        rows,
        (r) => `${r.op} ${r.precision}`,
        (r) => r.flop_per_byte,
        (r) => r.flop_per_s / 1e12,
      );
      const lines = peaks.map(([p, v], i) =>
        lineTrace([low, high], [v / 1e12, v / 1e12], `${p} peak: ${format.tera(v)} TFLOP/s`, {
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
              [(rate * low) / 1e12, (rate * end) / 1e12],
              `${names.join(", ")}: ${format.giga(rate)} GB/s`,
              { line: { color: styleOf("--soft"), width: 1.5, dash: DASHES[i % DASHES.length] } },
            ),
          );
      });
      return [
        [...points, ...lines],
        layoutOf(log("arithmetic intensity (FLOP per byte)", PLAIN), log("TFLOP/s", PLAIN)),
      ];
    },
  },
  {
    id: "family",
    title: "Rate by problem size",
    text: "One family of problems, which differ in one size only. Bars are 95 % confidence intervals.",
    choices: (rows) => {
      const sizes = new Map();
      computed(rows)
        .filter((r) => r.family)
        .forEach((r) => sizes.set(r.family, (sizes.get(r.family) || new Set()).add(r.size)));
      const families = [...sizes]
        .filter(([, s]) => s.size > 1)
        .sort((a, b) => b[1].size - a[1].size)
        .map(([f]) => f);
      return [["family", "Family", families.slice(0, MOST_FAMILIES)]];
    },
    rows: (rows, selected) => computed(rows).filter((r) => r.family && r.family === selected.family),
    draw(rows) {
      const sorted = [...rows].sort((a, b) => a.size - b.size);
      return [
        traces(
          sorted,
          (r) => `${r.library} ${r.precision}${threadsOf(r)}`,
          (r) => r.size,
          (r) => r.flop_per_s / 1e12,
          (members) => ({ mode: "lines+markers", ...rateBars(members) }),
        ),
        layoutOf({ title: rows[0].sweep_field, ...SIZES }, { title: "TFLOP/s", rangemode: "tozero" }),
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
        (r) => r.library,
        (r) => r.flop,
        (r) => r.flop_per_byte,
      ),
      layoutOf(log("FLOP per call"), log("FLOP per byte", PLAIN)),
    ],
  },
  {
    id: "precision",
    title: "Speed-up from lower precision",
    text: "How much faster or slower another precision is than f32, each with its fastest library.",
    rows: (rows) => comparedWithF32(rows).filter((r) => r.ratio != null),
    remarks: (rows) => [leftOut(comparedWithF32(rows).filter((r) => r.ratio == null).length)].filter(Boolean),
    draw: (rows) => [
      [
        ...traces(
          rows,
          (r) => `${r.op} ${r.precision}`,
          (r) => r.flop,
          (r) => r.ratio,
        ),
        lineAtOne(
          rows.map((r) => r.flop),
          "as fast as f32",
        ),
      ],
      layoutOf(
        log("FLOP per call"),
        ratioAxis(
          "compared with f32",
          rows.map((r) => r.ratio),
        ),
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
        (r) => `${r.library} ${r.precision}${threadsOf(r)} ${r.family.replace(/^sparse_gemm /, "")}`,
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
        layoutOf({ title: rows[0]?.sweep_field, ...SIZES }, ratioAxis("compared with dense", ratios)),
      ];
    },
  },
  {
    id: "framework",
    title: "Framework overhead",
    text:
      "How much faster or slower a framework, such as PyTorch, is than the fastest library that is called directly.",
    rows: (rows) => comparedWithDirect(rows).filter((r) => r.ratio != null),
    remarks: (rows) => [leftOut(comparedWithDirect(rows).filter((r) => r.ratio == null).length)].filter(Boolean),
    draw(rows) {
      const several = distinct(rows.map((r) => r.library)).length > 1;
      const times = rows.map((r) => r.directTime * 1e6);
      const points = traces(
        rows,
        (r) => `${several ? `${r.library} ` : ""}${r.op} ${r.precision}`,
        (r) => r.directTime * 1e6,
        (r) => r.ratio,
      );
      const ratios = rows.map((r) => r.ratio);
      return [
        [...points, lineAtOne(times, "as fast")],
        layoutOf(log("time of the fastest library (µs)"), ratioAxis("compared with the library", ratios)),
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
    rows: (_, __, file) => file.applications.filter(isWhole),
    remarks(_, __, file) {
      const partial = file.applications.filter((a) => !isWhole(a));
      const named = partial.map((a) => `${applicationName(a)}: ${a.coverage}`);
      return [
        file.applications.some((a) => isWhole(a) && a.disturbed) &&
          "Hatched bars contain times that other programs disturbed.",
        partial.length &&
          `Not drawn, because some of their kernels have no time and a partial sum would look short: ${named.join("; ")}.`,
      ].filter(Boolean);
    },
    draw(rows) {
      const severalThreads = distinct(rows.map((a) => a.threads)).length > 1;
      const names = rows.map((a) => format.plain(applicationName(a, severalThreads)));
      const details = rows.map((a) =>
        format.plain(
          `${a.application}: ${format.seconds(a.time)}, ${a.coverage}; ${a["of which"] || ""}`,
        ),
      );
      return [
        [
          {
            type: "bar",
            orientation: "h",
            y: names,
            x: rows.map((a) => a.time),
            marker: { color: COLORS[0], pattern: { shape: rows.map((a) => (a.disturbed ? "/" : "")) } },
            hoverinfo: "text",
            text: rows.map((a) => format.seconds(a.time) + (a.disturbed ? `, ${a.disturbed} disturbed` : "")),
            textposition: "outside",
            cliponaxis: false,
            hovertext: details,
          },
        ],
        layoutOf(
          log("seconds"),
          { title: "", autorange: "reversed", automargin: true, dtick: 1 },
          { showlegend: false, height: 90 + 24 * rows.length, margin: { l: 60, r: 140, t: 10, b: 50 } },
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
        { mode: "lines+markers" },
      ),
      layoutOf(log("bytes"), log("µs")),
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
      layoutOf(log("bytes"), log("GB/s", PLAIN)),
    ],
  },
];

/* The ratio of each case of a comparison with its interval, sorted. */
function pairChart(pair) {
  const rows = thinned(pair.cases.filter((r) => r.ratio != null).sort((a, b) => a.ratio - b.ratio));
  const words = format.fasterOrSlower;
  const colors = { slower: COLORS[5], faster: COLORS[2], same: COLORS[6], "cannot tell": COLORS[1] };
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
  const points = verdicts.map((verdict, i) => {
    const members = rows.map((r, at) => [r, at]).filter(([r]) => verdict === null || r.verdict === verdict);
    return {
      type: "scatter",
      mode: "markers",
      name: verdict || "all",
      x: members.map(([, at]) => at + 1),
      y: members.map(([r]) => r.ratio),
      marker: { color: colors[verdict] || COLORS[0], symbol: SYMBOLS[i], size: 7 },
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
      { title: `cases, sorted by the speed of ${format.plain(pair.second)}` },
      ratioAxis(
        "",
        rows.map((r) => r.ratio),
      ),
      { showlegend: !pair.published },
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
    marker: { ...markerOf(i), size: 6 },
  }));
  return [
    points,
    layoutOf(
      { title: "process, samples in order of measurement", dtick: 1 },
      { title: "µs per call" },
      { showlegend: false },
    ),
  ];
}
