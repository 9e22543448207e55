"use strict";
/* Content of the page → pictures and table. */
const content = JSON.parse(document.getElementById("content").textContent);
const CONFIG = { responsive: true, displaylogo: false, modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]] };

/* Rows of all files: an object a case, made from the columns. */
const rows = content.files.flatMap((file, f) => {
  const names = Object.keys(file.columns), count = names.length ? file.columns[names[0]].length : 0;
  return Array.from({ length: count }, (_, i) => {
    const row = { file: f, at: i };
    for (const name of names) row[name] = file.columns[name][i];
    return row;
  });
});
rows.forEach((row, id) => { row.id = id; });
const rowsOf = (f) => rows.filter((r) => r.file === f);

/* Pictures are drawn when they come into view, and anew when the colours change. */
const drawn = new Map();
function draw(div) {
  const [traces, shape] = div.make();
  drawn.set(div, true);
  window.Plotly.react(div, traces, shape, CONFIG);
  if (div.onPoint && !div.listens && div.on) {
    div.listens = true;
    div.on("plotly_click", (event) => div.onPoint(event.points[0].customdata));
  }
}
const seen = new IntersectionObserver((entries) => entries.forEach((e) => { if (e.isIntersecting && !drawn.has(e.target)) draw(e.target); }), { rootMargin: "300px" });
dark.addEventListener("change", () => drawn.forEach((_, div) => draw(div)));
window.addEventListener("beforeprint", () => document.querySelectorAll(".plot").forEach(draw));

function picture(parent, label, wide, make, onPoint) {
  const div = element("div", { class: wide ? "plot wide" : "plot", role: "img", "aria-label": label });
  div.make = make;
  div.onPoint = onPoint;
  parent.append(div);
  seen.observe(div);
  return div;
}

function addChart(chart, f) {
  const file = content.files[f], own = rowsOf(f), chosen = {};
  const choices = (chart.choices ? chart.choices(own) : []).map(([name, label, values]) => [name, label, values.map((v) => (Array.isArray(v) ? v : [v, v]))]);
  if (choices.some(([, , values]) => !values.length)) return;
  choices.forEach(([name, , values]) => { chosen[name] = values[0][0]; });
  const taken = () => chart.rows(own, chosen, file);
  if (!taken().length) return;
  const many = content.files.length > 1 ? ` (${file.name})` : "";
  const figure = element("figure", { class: chart.wide ? "wide" : null, id: `${chart.id}-${f}` }, element("figcaption", {}, element("strong", {}, chart.title + many), chart.text));
  const shown = element("span", {});
  const make = () => {
    const found = taken(), some = thinned(found);
    shown.textContent = some.length < found.length ? ` Every ${Math.ceil(found.length / MOST_POINTS)}th of ${found.length} points is drawn.` : "";
    return chart.draw(some, chosen, file);
  };
  figure.firstChild.append(shown);
  const bar = element("div", { class: "choices" });
  choices.filter(([, , values]) => values.length > 1).forEach(([name, label, values]) => bar.append(choice(label, values, (v) => { chosen[name] = v; draw(div); }, chosen[name])));
  if (bar.children.length) figure.append(bar);
  const div = picture(figure, `${chart.title} ${chart.text} The table below has every number.`, chart.tall, make, (id) => id != null && showDetails(rows[id]));
  document.getElementById("pictures").append(figure);
  document.getElementById("sections").append(element("a", { href: `#${chart.id}-${f}` }, chart.title + many));
}

/* ---- table ---- */

const many = content.files.length > 1;
const COLUMNS = [
  ...(many ? [["file", "File", (r) => content.files[r.file].name]] : []),
  ["op", "Operation", (r) => r.op],
  ["title", "Problem", (r) => r.title],
  ["precision", "Precision", (r) => r.precision],
  ["library", "Library", (r) => r.library],
  ["time_s", "Time", (r) => words.seconds(r.time_s), "number"],
  ["half", "± 95 %", (r) => words.plusMinus(words.half(r)), "number", (r) => words.half(r)],
  ["flop_per_s", "TFLOP/s", (r) => words.tera(r.flop_per_s), "number"],
  ["bytes_per_s", "GB/s", (r) => words.giga(r.bus_bytes_per_s ?? r.bytes_per_s), "number", (r) => r.bus_bytes_per_s ?? r.bytes_per_s],
  ["limit", "Limit", (r) => r.limit ?? "–"],
  ["share_of_limit", "Of it", (r) => words.percent(r.share_of_limit), "number"],
  ["place", "Fastest", (r) => ({ 1: "fastest", 2: "tie" })[r.place] ?? "", "", (r) => ({ 1: 0, 2: 1 })[r.place] ?? 2],
  ["status", "Status", (r) => (r.status === "ok" ? "ok" : `${r.status.replaceAll("_", " ")}: ${r.reason ?? ""}`)],
  ["notes", "Notes", (r) => r.notes ?? ""],
];
const state = { sort: null, down: false, shown: rows, from: -1 };
const filters = { search: "", op: "", precision: "", library: "", status: "", limit: "", file: "" };
const scroller = document.getElementById("scroller"), table = document.getElementById("table");
const body = table.tBodies[0], ROW = 34, EXTRA = 20;

function matches(row) {
  for (const name of ["op", "precision", "library", "status", "limit"]) if (filters[name] && String(row[name]) !== filters[name]) return false;
  if (filters.file && String(row.file) !== filters.file) return false;
  if (!filters.search) return true;
  row.words ??= [row.case, row.title, row.library, row.applications, row.notes, row.reason].join(" ").toLowerCase();
  return filters.search.toLowerCase().split(/\s+/).every((w) => row.words.includes(w));
}

const collator = new Intl.Collator("en", { numeric: true });
function order(a, b, value) {
  const x = value(a), y = value(b);
  if (x == null || y == null) return (x == null) - (y == null); // what is missing comes last, either way
  const found = typeof x === "number" ? x - y : collator.compare(String(x), String(y));
  return state.down ? -found : found;
}

function refresh() {
  let shown = rows.filter(matches);
  if (state.sort !== null) {
    const [name, , text, , value] = COLUMNS[state.sort];
    const get = value || ((r) => (typeof r[name] === "number" && name !== "file" ? r[name] : r[name] == null ? null : text(r)));
    shown = [...shown].sort((a, b) => order(a, b, get) || a.id - b.id);
  }
  state.shown = shown;
  state.from = -1;
  document.getElementById("count").textContent = `${shown.length} of ${rows.length} cases`;
  table.setAttribute("aria-rowcount", shown.length + 1);
  head.forEach((th, i) => th.setAttribute("aria-sort", state.sort === i ? (state.down ? "descending" : "ascending") : "none"));
  paint();
}

/* Only the rows in view are in the document: a hundred thousand scroll as ten do. */
function paint(everything = false) {
  const high = Math.ceil((scroller.clientHeight || 600) / ROW);
  const from = everything ? 0 : Math.max(0, Math.min(Math.floor(scroller.scrollTop / ROW) - EXTRA, state.shown.length - high - 2 * EXTRA));
  const start = Math.max(0, from - (from % 10));
  if (start === state.from && !everything) return;
  state.from = start;
  const end = everything ? state.shown.length : Math.min(state.shown.length, start + high + 2 * EXTRA + 10);
  const gap = (height) => element("tr", { "aria-hidden": "true" }, element("td", { colspan: COLUMNS.length, style: `height:${height}px;border:0;padding:0` }));
  const made = state.shown.slice(start, end).map((row, i) => {
    const tr = element("tr", { "aria-rowindex": start + i + 2 });
    for (const [name, , text, kind] of COLUMNS) {
      const td = element("td", { class: [kind, name === "library" && row.place === 1 ? "first" : "", name === "status" && row.status !== "ok" ? "bad" : ""].filter(Boolean).join(" ") || null });
      if (name === "title") td.append(element("button", { type: "button", title: "All of this case", onclick: () => showDetails(row) }, text(row)));
      else if (name === "share_of_limit" && row.share_of_limit != null) td.append(element("span", { class: "bar", style: `width:${Math.round(40 * row.share_of_limit)}px` }), text(row));
      else td.textContent = text(row);
      tr.append(td);
    }
    return tr;
  });
  body.replaceChildren(...(start ? [gap(start * ROW)] : []), ...made, ...(end < state.shown.length ? [gap((state.shown.length - end) * ROW)] : []));
}

let head = [];
function makeTable() {
  const tr = element("tr", { "aria-rowindex": 1 });
  head = COLUMNS.map(([, title, , kind], i) => {
    const th = element("th", { scope: "col", class: kind || null, "aria-sort": "none" }, element("button", { type: "button", onclick: () => {
      state.down = state.sort === i ? !state.down : false;
      state.sort = i;
      refresh();
    } }, title));
    tr.append(th);
    return th;
  });
  table.tHead.append(tr);
  let waiting = false;
  scroller.addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; paint(); });
  });
  window.addEventListener("beforeprint", () => paint(true));
  window.addEventListener("afterprint", () => { state.from = -1; paint(); });
}

function makeFilters() {
  const form = document.getElementById("filters");
  form.addEventListener("submit", (event) => event.preventDefault());
  let timer;
  const search = element("input", { type: "search", placeholder: "words of a case", oninput: () => { clearTimeout(timer); timer = setTimeout(() => { filters.search = search.value.trim(); scroller.scrollTop = 0; refresh(); }, 120); } });
  form.append(element("label", {}, "Search", search));
  const add = (name, label, pairs) => pairs.length > 1 && form.append(choice(label, [["", "all"], ...pairs], (v) => { filters[name] = v; scroller.scrollTop = 0; refresh(); }));
  if (many) add("file", "File", content.files.map((f, i) => [String(i), f.name]));
  const plain = (name) => distinct(rows.map((r) => r[name])).map((v) => [String(v), String(v).replaceAll("_", " ")]);
  [["op", "Operation"], ["precision", "Precision"], ["library", "Library"], ["limit", "Limit"], ["status", "Status"]].forEach(([name, label]) => add(name, label, plain(name)));
  form.append(element("button", { type: "button", id: "export", onclick: download }, "Export CSV"));
}

/* What is in the table now, for spreadsheets: plain values, and no text that one takes for a formula. */
function csv() {
  const names = distinct(content.files.flatMap((f) => Object.keys(f.columns)));
  const cell = (v) => {
    const text = v == null ? "" : typeof v === "string" && /^[=+\-@\t\r]/.test(v) ? `'${v}` : String(v);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = state.shown.map((r) => [content.files[r.file].name, ...names.map((n) => r[n])].map(cell).join(","));
  return [["file", ...names].map(cell).join(","), ...lines].join("\n") + "\n";
}
function download() {
  const url = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
  element("a", { href: url, download: "deepbench.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/* ---- one case ---- */

function showDetails(row) {
  const dialog = document.getElementById("details"), file = content.files[row.file];
  const facts = [
    ["Status", row.status === "ok" ? "ok" : `${row.status.replaceAll("_", " ")}: ${row.reason ?? ""}`],
    ["Time", row.time_s == null ? "–" : `${words.seconds(row.time_s)} (95 %: ${words.seconds(row.low_s)} to ${words.seconds(row.high_s)}), ${row.processes} fresh process${row.processes === 1 ? "" : "es"}, ${words.percent(row.clean_fraction)} of samples undisturbed`],
    ["First call", words.seconds(row.first_call_s)],
    ["Work", `${row.flop ? `${words.significant(row.flop / 1e9)} GFLOP, ` : ""}${words.bytes(row.traffic_bytes)} of least traffic`],
    ["Rate", [row.flop_per_s && `${words.tera(row.flop_per_s)} TFLOP/s`, row.bytes_per_s && `${words.giga(row.bytes_per_s)} GB/s`, row.bus_bytes_per_s && `${words.giga(row.bus_bytes_per_s)} GB/s on the bus`].filter(Boolean).join(", ") || "–"],
    ["Limit", row.limit ? `${row.limit}, at ${words.percent(row.share_of_limit)} of that roof (of its time: ${row.limit_evidence})` : "–"],
    ["Library", `${row.library} ${row.version ?? ""}`],
    ["Energy", row.joules_per_call == null ? null : `${words.joules(row.joules_per_call)} a call`],
    ["Memory", row.peak_memory_bytes == null ? null : `${words.bytes(row.peak_memory_bytes)} at most in the process`],
    ["Applications", row.applications], ["Notes", row.notes],
  ].filter(([, v]) => v);
  const command = `deepbench run ${row.case}`;
  const copy = element("button", { type: "button", onclick: () => navigator.clipboard?.writeText(command).then(() => { copy.textContent = "Copied"; }, () => { copy.textContent = "Select it by hand"; }) }, "Copy");
  const samples = file.samples[row.at] || [];
  dialog.replaceChildren(
    element("h2", { id: "details-title" }, `${row.op}: ${row.title}, ${row.precision}, ${row.library}`),
    element("dl", {}, ...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])),
    element("p", {}, "Measure it again: ", element("code", {}, command), " ", copy),
  );
  dialog.append(element("p", {}, element("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  dialog.showModal();
  if (samples.some((s) => s.length > 1)) {
    const div = element("div", { class: "plot", role: "img", "aria-label": "Samples of each process" });
    div.make = () => samplesChart(samples);
    dialog.insertBefore(div, dialog.lastChild);
    draw(div);
    dialog.addEventListener("close", () => drawn.delete(div), { once: true });
  }
}

/* ---- all of it ---- */

document.querySelectorAll("[data-pair]").forEach((parent) => {
  const pair = content.pairs[Number(parent.dataset.pair)];
  const means = element("table", {}, element("caption", { class: "unseen" }, `Geometric means of ${pair.first} and ${pair.second}`), element("thead", {}, element("tr", {}, ...["Geometric mean", "Cases", "Ratio", "95 % interval"].map((t) => element("th", { scope: "col", class: t === "Cases" || t === "Ratio" ? "number" : null }, t)))), element("tbody", {}, ...pair.means.map((m) => element("tr", {}, element("td", {}, m["geometric mean"]), element("td", { class: "number" }, String(m.cases)), element("td", { class: "number" }, words.ratio(m.ratio)), element("td", {}, m.low == null ? "–" : `${words.ratio(m.low)} to ${words.ratio(m.high)}`)))));
  parent.append(element("div", { class: "slide", tabindex: 0, role: "region", "aria-label": `Means of ${pair.first} and ${pair.second}` }, means));
  const figure = element("figure", { class: "wide" }, element("figcaption", {}, element("strong", {}, "Case by case"), pair.published ? "Their times have no interval; bars are ours." : "Bars are 95 % intervals."));
  parent.append(figure);
  picture(figure, `Ratios of ${pair.first} and ${pair.second}, case by case; their geometric means are in the table above.`, true, () => pairChart(pair));
});
content.files.forEach((_, f) => CHARTS.forEach((chart) => addChart(chart, f)));
document.getElementById("sections").append(element("a", { href: "#cases" }, "All cases"));
makeFilters();
makeTable();
refresh();
document.documentElement.dataset.ready = "yes";
