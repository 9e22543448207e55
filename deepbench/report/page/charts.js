"use strict";
/* The pictures. Each is drawn from the rows of the table, when it comes into view. */

/* Okabe and Ito's colours, which people with any kind of colour vision tell apart; symbols differ as well. */
const COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C", "#B8A800"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon"];
/* More points than this make a picture slow and no clearer: every k-th is drawn, and the caption says so. */
const MOST_POINTS = 3000;

const CONFIG = { responsive: true, displaylogo: false, modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]] };

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const styleOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function layout(x, y, more = {}) {
  const line = styleOf("--line"), front = styleOf("--front");
  const axis = (a) => ({ gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true, exponentformat: "power", ...a, title: { text: a.title } });
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: front, family: "system-ui, sans-serif", size: 13 },
    margin: { l: 60, r: 15, t: 10, b: 50 }, hovermode: "closest",
    hoverlabel: { align: "left", bgcolor: styleOf("--panel"), bordercolor: front, font: { color: front } },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
    xaxis: axis(x), yaxis: axis(y), ...more,
  };
}
const log = (title, more = {}) => ({ title, type: "log", dtick: 1, ...more });
/* For numbers near one: 0.01, not ten to a power. */
const PLAIN = { tickformat: "~g" };
const TIMES = { type: "log", dtick: "D2", ...PLAIN };

const threads = (row) => (row.threads == null ? "" : `, ${row.threads} thread${row.threads === 1 ? "" : "s"}`);

function hover(row) {
  const lines = [row.title, `${row.library}, ${row.precision}${threads(row)}`];
  if (row.time_s != null) lines.push(`${words.seconds(row.time_s)} ${words.interval(row)}`);
  if (row.flop_per_s != null) lines.push(`${words.tera(row.flop_per_s)} TFLOP/s`);
  if (row.limit) lines.push(`${row.limit}: ${words.percent(row.share_of_limit)} of that roof`);
  if (row.command) lines.push(row.command);
  return lines.map((l) => words.plain(l)).join("<br>");
}

/* One trace of points a kind of row, with its colour and symbol. */
function points(rows, kindOf, xOf, yOf, more = {}) {
  const kinds = distinct(rows.map(kindOf));
  return kinds.map((kind, i) => {
    const own = rows.filter((r) => kindOf(r) === kind);
    return {
      type: "scatter", mode: "markers", name: words.plain(kind), x: own.map(xOf), y: own.map(yOf),
      text: own.map(hover), hoverinfo: "text", customdata: own.map((r) => r.id),
      marker: { color: COLOURS[i % COLOURS.length], symbol: SYMBOLS[i % SYMBOLS.length], size: 8, opacity: 0.85, line: { width: 0.5, color: styleOf("--back") } },
      ...(typeof more === "function" ? more(own) : more),
    };
  });
}

/* Bars for the interval of a rate, from that of its time. */
const rateBars = (rows) => ({
  error_y: {
    type: "data", symmetric: false, thickness: 1, width: 2,
    array: rows.map((r) => (r.low_s ? r.flop / r.low_s / 1e12 - r.flop_per_s / 1e12 : 0)),
    arrayminus: rows.map((r) => (r.high_s ? r.flop_per_s / 1e12 - r.flop / r.high_s / 1e12 : 0)),
  },
});

const ok = (rows) => rows.filter((r) => ["ok", "published", "imported"].includes(r.status) && r.time_s != null);
const computed = (rows) => ok(rows).filter((r) => r.flop_per_s && !r.ranks); // groups have pictures of their own
/* Settings that a group ran with, such as place=in, as its title has them. */
const way = (row) => row.title.split(" ").filter((w) => w.includes("=")).map((w) => ` ${w}`).join("");
const thinned = (rows) => {
  const step = Math.ceil(rows.length / MOST_POINTS);
  return step > 1 ? rows.filter((_, i) => i % step === 0) : rows;
};
const line = (x, y, name, more = {}) => ({ type: "scatter", mode: "lines", x, y, name: words.plain(name), hoverinfo: "name", line: { color: styleOf("--soft"), width: 1.5, dash: "dash" }, ...more });

const CHARTS = [
  {
    id: "roofline", title: "How close is each kernel to the roof?", wide: true, tall: true,
    text: "Rate against arithmetic intensity. Lines are the measured roofs: a kernel is no higher than its precision's level line (but for convolutions that leave out what is counted, as padding), and than the slope of the memory that its data lie in. What is far below all lines is slowed by something else.",
    choices: (rows, file) => [["place", "Roofs of", file.limits.map((l, i) => [String(i), `${{ cpu: "CPU", cuda: "GPU", hip: "GPU" }[l.device]}, ${l.threads} thread${l.threads === 1 ? "" : "s"}`])], ["libraries", "Show", [["fastest", "the fastest library"], ["all", "all libraries"]]], ["precision", "Precision", ["all", ...distinct(computed(rows).map((r) => r.precision))]]],
    rows: (rows, chosen, file) => { const roofs = file.limits[chosen.place]; return computed(rows).filter((r) => r.device === roofs.device && r.threads === roofs.threads && r.flop_per_byte && (chosen.libraries === "all" || r.place === 1) && (chosen.precision === "all" || r.precision === chosen.precision)); },
    draw(rows, chosen, file) {
      const xs = rows.map((r) => r.flop_per_byte), low = Math.min(...xs) / 2, high = Math.max(...xs) * 2;
      const roofs = file.limits[chosen.place];
      const peaks = Object.entries(roofs.peaks).filter(([p]) => chosen.precision === "all" || p === chosen.precision);
      const top = Math.max(...peaks.map(([, v]) => v), 0);
      const traces = points(rows, (r) => `${r.op} ${r.precision}`, (r) => r.flop_per_byte, (r) => r.flop_per_s / 1e12);
      const dashes = ["solid", "dash", "dot", "dashdot", "longdash"];
      peaks.forEach(([p, v], i) => traces.push(line([low, high], [v / 1e12, v / 1e12], `${p} at most ${words.tera(v)} TFLOP/s`, { line: { color: styleOf("--front"), width: 1.5, dash: dashes[i % 5] } })));
      const levels = new Map();
      Object.entries(roofs.memory).forEach(([level, rate]) => { const near = [...levels.keys()].find((k) => Math.abs(k / rate - 1) < 0.03) ?? rate; levels.set(near, [...(levels.get(near) || []), level]); });
      if (top) [...levels].forEach(([rate, names], i) => {
        const level = names.join(", ");
        const x0 = low, x1 = Math.min(high, top / rate);
        if (x1 > x0) traces.push(line([x0, x1], [(rate * x0) / 1e12, (rate * x1) / 1e12], `${level} ${words.giga(rate)} GB/s`, { line: { color: styleOf("--soft"), width: 1.5, dash: dashes[i % 5] } }));
      });
      return [traces, layout(log("FLOP for each byte of least traffic", PLAIN), log("TFLOP/s", PLAIN))];
    },
  },
  {
    id: "family", title: "Rate against size",
    text: "One family of problems: all sizes alike but one, which grows to the right. Bars are 95 % intervals.",
    choices: (rows) => {
      const sizes = new Map();
      computed(rows).filter((r) => r.family).forEach((r) => sizes.set(r.family, (sizes.get(r.family) || new Set()).add(r.size)));
      const families = [...sizes].filter(([, s]) => s.size > 1).sort((a, b) => b[1].size - a[1].size).map(([f]) => f);
      return [["family", "Family", families.slice(0, 400)]];
    },
    rows: (rows, chosen) => computed(rows).filter((r) => r.family && r.family === chosen.family),
    draw(rows) {
      const sorted = [...rows].sort((a, b) => a.size - b.size);
      return [points(sorted, (r) => `${r.library} ${r.precision}${threads(r)}`, (r) => r.size, (r) => r.flop_per_s / 1e12, (own) => ({ mode: "lines+markers", ...rateBars(own) })), layout({ title: "the size that grows", ...TIMES }, { title: "TFLOP/s", rangemode: "tozero" })];
    },
  },
  {
    id: "fastest", title: "Which library is fastest where?",
    text: "Each point is a problem; colour and symbol name its fastest library. Where intervals overlap the order is not certain (ties in the table).",
    choices(rows) {
      const winners = new Map(), rivals = new Map();
      const add = (map, r) => { const kind = `${r.op} ${r.precision} ${r.direction}`; map.set(kind, (map.get(kind) || new Set()).add(r.backend)); };
      computed(rows).forEach((r) => { add(rivals, r); if (r.place === 1) add(winners, r); });
      const kinds = [...rivals].filter(([, names]) => names.size > 1).map(([kind]) => kind);
      return [["kind", "Operation", kinds.sort((a, b) => (winners.get(b)?.size || 0) - (winners.get(a)?.size || 0))]];
    },
    rows: (rows, chosen) => computed(rows).filter((r) => r.place === 1 && r.flop_per_byte && `${r.op} ${r.precision} ${r.direction}` === chosen.kind),
    draw: (rows) => [points(rows, (r) => r.library, (r) => r.flop, (r) => r.flop_per_byte), layout(log("FLOP of the problem"), log("FLOP a byte", PLAIN))],
  },
  {
    id: "precision", title: "What does a lower precision gain?",
    text: "Time of the fastest f32 over that of the fastest in another precision, problem by problem: above 1 the lower precision is faster.",
    rows(rows) {
      const best = new Map();
      ok(rows).filter((r) => r.place === 1 && r.flop).forEach((r) => {
        const key = `${r.op}|${r.title}|${r.device}|${r.threads}`;
        if (!best.has(key)) best.set(key, {});
        const own = best.get(key);
        if (!own[r.precision] || r.time_s < own[r.precision].time_s) own[r.precision] = r;
      });
      return [...best.values()].filter((own) => own.f32).flatMap((own) => Object.entries(own).filter(([p]) => p !== "f32").map(([, r]) => ({ ...r, gain: own.f32.time_s / r.time_s })));
    },
    draw(rows) {
      const xs = rows.map((r) => r.flop);
      return [[...points(rows, (r) => `${r.op} ${r.precision}`, (r) => r.flop, (r) => r.gain), line([Math.min(...xs), Math.max(...xs)], [1, 1], "as fast as f32")], layout(log("FLOP of the problem"), { title: "times as fast as f32", ...TIMES })];
    },
  },
  {
    id: "sparse", title: "When do zeros pay off?",
    text: "Sparse products: time of the fastest dense product of the shape over that of the sparse one. Above 1 sparse is faster.",
    rows: (rows) => ok(rows).filter((r) => r.speed_up_over_baseline != null && r.size != null),
    draw(rows) {
      const sorted = [...rows].sort((a, b) => a.size - b.size), xs = sorted.map((r) => r.size);
      return [[...points(sorted, (r) => `${r.library} ${r.precision}${threads(r)} ${r.family.replace(/^sparse_gemm /, "")}`, (r) => r.size, (r) => r.speed_up_over_baseline, { mode: "lines+markers" }), line([Math.min(...xs), Math.max(...xs)], [1, 1], "as fast as dense")], layout({ title: "n", ...TIMES }, { title: "times as fast as dense", ...TIMES })];
    },
  },
  {
    id: "framework", title: "What does a framework add?",
    text: "Time through a framework, such as PyTorch, over that of the fastest library called directly, for the same problem.",
    rows(rows) {
      const best = new Map(), keyOf = (r) => `${r.op}|${r.title}|${r.precision}|${r.device}|${r.threads}`;
      ok(rows).filter((r) => !r.framework).forEach((r) => { if (!best.has(keyOf(r)) || r.time_s < best.get(keyOf(r))) best.set(keyOf(r), r.time_s); });
      return ok(rows).filter((r) => r.framework && best.has(keyOf(r))).map((r) => ({ ...r, direct: best.get(keyOf(r)), cost: r.time_s / best.get(keyOf(r)) }));
    },
    draw(rows) {
      const xs = rows.map((r) => r.direct * 1e6), several = distinct(rows.map((r) => r.library)).length > 1;
      return [[...points(rows, (r) => `${several ? `${r.library} ` : ""}${r.op} ${r.precision}`, (r) => r.direct * 1e6, (r) => r.cost), line([Math.min(...xs), Math.max(...xs)], [1, 1], "no cost")], layout(log("time of the fastest library (µs)"), { title: "times as long through the framework", ...TIMES })];
    },
  },
  {
    id: "applications", title: "What does each application's work take?", wide: true,
    text: "One pass over the kernels that a suite lists for an application, each at its fastest library: a sum of kernels, not the time of a network.",
    rows: (_, __, file) => file.applications.filter((a) => a.time != null),
    draw(rows) {
      const many = distinct(rows.map((a) => a.threads)).length > 1;
      const names = rows.map((a) => words.plain(`${a.application} (${a.suite.replace("deepbench/", "")}, ${a.precision}${many ? `, ${a.threads} threads` : ""})`));
      return [[{ type: "bar", orientation: "h", y: names, x: rows.map((a) => a.time), marker: { color: COLOURS[0] }, hoverinfo: "text", text: rows.map((a) => words.seconds(a.time)), textposition: "outside", cliponaxis: false, hovertext: rows.map((a) => words.plain(`${a.application}: ${words.seconds(a.time)}, ${a.measured} of ${a.kernels} kernels; ${a["of which"] || ""}`)) }], layout(log("seconds"), { title: "", autorange: "reversed", automargin: true, dtick: 1 }, { showlegend: false, height: 90 + 24 * rows.length, margin: { l: 60, r: 70, t: 10, b: 50 } })];
    },
  },
  {
    id: "latency", title: "All-reduce: how long?",
    text: "Time of an all-reduce and its kin against the bytes that each rank holds.",
    choices: (rows) => [["op", "Operation", distinct(ok(rows).filter((r) => r.bus_bytes_per_s || r.ranks).map((r) => r.op))]],
    rows: (rows, chosen) => ok(rows).filter((r) => r.ranks && r.op === chosen.op).sort((a, b) => a.bytes - b.bytes),
    draw: (rows) => [points(rows, (r) => `${r.library} ${r.ranks} ranks ${r.precision}${way(r)}`, (r) => r.bytes, (r) => r.time_s * 1e6, { mode: "lines+markers" }), layout(log("bytes"), log("µs"))],
  },
  {
    id: "bus", title: "All-reduce: how fast do bytes travel?",
    text: "Bus bandwidth as nccl-tests counts it, against the bytes that each rank holds.",
    choices: (rows) => [["op", "Operation", distinct(ok(rows).filter((r) => r.bus_bytes_per_s).map((r) => r.op))]],
    rows: (rows, chosen) => ok(rows).filter((r) => r.bus_bytes_per_s && r.op === chosen.op).sort((a, b) => a.bytes - b.bytes),
    draw: (rows) => [points(rows, (r) => `${r.library} ${r.ranks} ranks ${r.precision}${way(r)}`, (r) => r.bytes, (r) => r.bus_bytes_per_s / 1e9, { mode: "lines+markers" }), layout(log("bytes"), log("GB/s", PLAIN))],
  },
];

/* Two sides beside each other: the ratio of each case with its interval, sorted. */
function pairChart(pair) {
  const rows = thinned([...pair.cases].sort((a, b) => a.ratio - b.ratio));
  const colours = { slower: COLOURS[5], faster: COLOURS[2], same: COLOURS[6], "cannot tell": COLOURS[1] };
  const kinds = pair.published ? [null] : ["slower", "faster", "same", "cannot tell"].filter((k) => rows.some((r) => r.verdict === k));
  const traces = kinds.map((kind, i) => {
    const own = rows.map((r, at) => [r, at]).filter(([r]) => kind === null || r.verdict === kind);
    return {
      type: "scatter", mode: "markers", name: kind || "all", x: own.map(([, at]) => at + 1), y: own.map(([r]) => r.ratio),
      marker: { color: colours[kind] || COLOURS[0], symbol: SYMBOLS[i], size: 7 }, hoverinfo: "text",
      text: own.map(([r]) => [r.title || r.case, r.precision, r.library, `${words.seconds(r.first)} and ${words.seconds(r.second)}`, `ratio ${words.ratio(r.ratio)}${r.low == null ? "" : ` (${words.ratio(r.low)} to ${words.ratio(r.high)})`}`, r.verdict || "", r.notes || ""].filter(Boolean).map(words.plain).join("<br>")),
      error_y: { type: "data", symmetric: false, thickness: 1, width: 0, array: own.map(([r]) => (r.high == null ? 0 : r.high - r.ratio)), arrayminus: own.map(([r]) => (r.low == null ? 0 : r.ratio - r.low)) },
    };
  });
  traces.push(line([0.5, rows.length + 0.5], [1, 1], "equal"));
  return [traces, layout({ title: "cases, sorted by ratio" }, { title: "ratio of times", ...TIMES }, { showlegend: !pair.published })];
}

/* All samples of a case, process by process: modes show as bands. */
function samplesChart(rounds) {
  const traces = rounds.map((samples, i) => ({
    type: "scatter", mode: "markers", name: `process ${i + 1}`, hoverinfo: "text", text: samples.map(words.seconds),
    x: samples.map((_, j) => i + 1 + (samples.length > 1 ? 0.7 * (j / (samples.length - 1) - 0.5) : 0)), y: samples.map((s) => s * 1e6),
    marker: { color: COLOURS[i % COLOURS.length], symbol: SYMBOLS[i % SYMBOLS.length], size: 6 },
  }));
  return [traces, layout({ title: "fresh process, samples in the order they were taken", dtick: 1 }, { title: "µs a call" }, { showlegend: false })];
}
