"use strict";
/* Content of the page → pictures and table. */
const content = JSON.parse(document.getElementById("content").textContent);

/* Rows of all files: an object a case, made from the columns. */
const rows = content.files.flatMap((file, f) => {
  const names = Object.keys(file.columns), count = names.length ? file.columns[names[0]].length : 0;
  return Array.from({ length: count }, (_, i) => {
    const row = { file: file.name, from: f, at: i };
    for (const name of names) row[name] = file.columns[name][i];
    return row;
  });
});
rows.forEach((row, id) => { row.id = id; });
const rowsOf = (f) => rows.filter((r) => r.from === f);

/* Pictures are drawn when they come into view, and anew when the colours change. */
const drawn = new Map();
function draw(div) {
  const [traces, shape] = div.make();
  if (shape.height) div.style.height = `${shape.height}px`;
  drawn.set(div, true);
  window.Plotly.react(div, traces, shape, CONFIG);
  if (div.onPoint && !div.listens && div.on) {
    div.listens = true;
    div.on("plotly_click", (event) => div.onPoint(event.points[0].customdata));
  }
}
const seen = new IntersectionObserver((entries) => entries.forEach((e) => { if (e.isIntersecting && !drawn.has(e.target)) draw(e.target); }), { rootMargin: "300px" });
dark.addEventListener("change", () => drawn.forEach((_, div) => draw(div)));
/* Paper is white, whatever the screen is. */
window.addEventListener("beforeprint", () => { document.documentElement.dataset.paper = "yes"; document.querySelectorAll(".plot").forEach(draw); });
window.addEventListener("afterprint", () => { delete document.documentElement.dataset.paper; drawn.forEach((_, div) => draw(div)); });

function picture(parent, label, wide, make, onPoint) {
  const div = element("div", { class: wide ? "plot wide" : "plot", role: "group", "aria-label": label });
  div.make = make;
  div.onPoint = onPoint;
  parent.append(div);
  seen.observe(div);
  return div;
}

function addChart(chart, f) {
  const file = content.files[f], own = rowsOf(f), chosen = {};
  const choices = (chart.choices ? chart.choices(own, file) : []).map(([name, label, values]) => [name, label, values.map((v) => (Array.isArray(v) ? v : [v, v]))]);
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
  ...(many ? [["file", "File", (r) => r.file]] : []),
  ["op", "Operation", (r) => r.op],
  ["title", "Problem", (r) => r.title],
  ["precision", "Precision", (r) => r.precision],
  ["library", "Library", (r) => r.library],
  ["time_s", "Time", (r) => words.seconds(r.time_s), "number"],
  ["half", "± 95 %", words.interval, "number", (r) => words.half(r)],
  ["flop_per_s", "TFLOP/s", (r) => words.tera(r.flop_per_s), "number"],
  ["bytes_per_s", "GB/s", (r) => words.giga(r.bus_bytes_per_s ?? r.bytes_per_s), "number", (r) => r.bus_bytes_per_s ?? r.bytes_per_s],
  ["limit", "Nearest roof", (r) => r.limit ?? "–"],
  ["share_of_limit", "Of it", (r) => words.percent(r.share_of_limit), "number"],
  ["place", "Fastest", (r) => ({ 1: "fastest", 2: "tie" })[r.place] ?? "", "", (r) => ({ 1: 0, 2: 1 })[r.place] ?? 2],
  ["status", "Status", (r) => statusWords(r)],
  ["notes", "Notes", (r) => r.notes ?? ""],
];

function addTable() {
  return new Table(rows, COLUMNS, {
    search: (r) => [r.case, r.title, r.library, r.applications, r.notes, r.reason],
    filters: [...(many ? [["file", "File"]] : []), ["op", "Operation"], ["precision", "Precision"], ["library", "Library"], ["limit", "Nearest roof"], ["status", "Status"]],
    exported: ["file", ...distinct(content.files.flatMap((f) => Object.keys(f.columns)))],
    fileName: "deepbench.csv",
    open: (row, text) => element("button", { type: "button", title: "All of this case", onclick: () => showDetails(row) }, text),
    decorate(td, name, row) {
      if (name === "library" && row.place === 1) td.classList.add("first");
      if (name === "status" && !["ok", "published", "imported"].includes(row.status)) td.classList.add("bad");
      if (name === "share_of_limit" && row.share_of_limit != null) td.prepend(element("span", { class: "bar", style: `width:${Math.round(40 * row.share_of_limit)}px` }));
    },
  });
}

/* ---- one case ---- */

function timeWords(row) {
  if (row.time_s == null) return "–";
  const parts = [];
  if (row.low_s != null) parts.push(`95 %: ${words.seconds(row.low_s)} to ${words.seconds(row.high_s)}${row.interval_of === "one process" ? " (from inside one process, so too narrow)" : ""}`);
  if (row.processes != null && row.status === "ok") parts.push(`${row.processes} fresh process${row.processes === 1 ? "" : "es"}`);
  if (row.clean_fraction != null) parts.push(`${words.percent(row.clean_fraction)} of samples undisturbed`);
  return [words.seconds(row.time_s), ...parts].join(", ");
}

const statusWords = (row) => (row.reason ? `${row.status.replaceAll("_", " ")}: ${row.reason}` : row.status.replaceAll("_", " "));

function showDetails(row) {
  const dialog = document.getElementById("details"), file = content.files[row.from];
  const facts = [
    ["Status", statusWords(row)],
    ["Time", timeWords(row)],
    ["First call", row.first_call_s == null ? null : words.seconds(row.first_call_s)],
    ["Work", `${row.flop ? `${words.significant(row.flop / 1e9)} GFLOP, ` : ""}${words.bytes(row.traffic_bytes)} of least traffic`],
    ["Rate", [row.flop_per_s && `${words.tera(row.flop_per_s)} TFLOP/s`, row.bytes_per_s && `${words.giga(row.bytes_per_s)} GB/s`, row.bus_bytes_per_s && `${words.giga(row.bus_bytes_per_s)} GB/s on the bus`].filter(Boolean).join(", ") || "–"],
    ["Nearest roof", row.limit ? `${row.limit}, of which it reaches ${words.percent(row.share_of_limit)} (shares of its time that each roof explains: ${row.limit_evidence})` : "–"],
    ["Library", `${row.library} ${row.version ?? ""}`],
    ["Energy", row.joules_per_call == null ? null : `${words.joules(row.joules_per_call)} a call`],
    ["Memory", row.peak_memory_bytes == null ? null : `${words.bytes(row.peak_memory_bytes)} at most in the process`],
    ["Applications", row.applications], ["Notes", row.notes],
  ].filter(([, v]) => v);
  const byHand = () => { copy.textContent = "Select it by hand"; };
  const copy = element("button", { type: "button", onclick: () => (navigator.clipboard ? navigator.clipboard.writeText(row.command).then(() => { copy.textContent = "Copied"; }, byHand) : byHand()) }, "Copy");
  const samples = file.samples[row.at] || [];
  dialog.replaceChildren(
    element("h2", { id: "details-title" }, `${row.op}: ${row.title}, ${row.precision}, ${row.library}`),
    element("dl", {}, ...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])),
    row.command ? element("p", {}, "Measure it again: ", element("code", {}, row.command), " ", copy) : "",
  );
  dialog.append(element("p", {}, element("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  dialog.showModal();
  if (samples.some((s) => s.length > 1)) {
    const div = element("div", { class: "plot", role: "group", "aria-label": "Samples of each process" });
    div.make = () => samplesChart(samples);
    dialog.insertBefore(div, dialog.lastChild);
    draw(div);
    dialog.addEventListener("close", () => drawn.delete(div), { once: true });
  }
}

/* ---- all of it ---- */

document.querySelectorAll("[data-pair]").forEach((parent) => {
  const pair = content.pairs[Number(parent.dataset.pair)];
  if (!pair.cases.length) return;
  const means = element("table", {}, element("caption", { class: "unseen" }, `Geometric means of ${pair.first} and ${pair.second}`), element("thead", {}, element("tr", {}, ...["Geometric mean", "Cases", "Ratio", "95 % interval"].map((t) => element("th", { scope: "col", class: t === "Cases" || t === "Ratio" ? "number" : null }, t)))), element("tbody", {}, ...pair.means.map((m) => element("tr", {}, element("td", {}, m["geometric mean"]), element("td", { class: "number" }, String(m.cases)), element("td", { class: "number" }, words.ratio(m.ratio)), element("td", {}, m.low == null ? "–" : `${words.ratio(m.low)} to ${words.ratio(m.high)}`)))));
  parent.append(element("div", { class: "slide", tabindex: 0, role: "region", "aria-label": `Means of ${pair.first} and ${pair.second}` }, means));
  const figure = element("figure", { class: "wide" }, element("figcaption", {}, element("strong", {}, "Case by case"), pair.published ? "Their times have no interval; bars are ours." : "Bars are 95 % intervals."));
  parent.append(figure);
  picture(figure, `Ratios of ${pair.first} and ${pair.second}, case by case; their geometric means are in the table above.`, true, () => pairChart(pair));
});
content.files.forEach((_, f) => CHARTS.forEach((chart) => addChart(chart, f)));
document.getElementById("sections").append(element("a", { href: "#cases" }, "All cases"));
const table = addTable();
document.documentElement.dataset.ready = "yes";
