"use strict";
/* Pages of a site beside those of machines: the index, one of a family of problems, and two machines beside each other. */
const content = JSON.parse(document.getElementById("content").textContent);
const linkTo = (href, text) => element("a", { href }, text);
const redraw = [];
const all = () => redraw.forEach((draw) => draw());
dark.addEventListener("change", all);
window.addEventListener("beforeprint", () => { document.documentElement.dataset.paper = "yes"; all(); });
window.addEventListener("afterprint", () => { delete document.documentElement.dataset.paper; all(); });
function plot(figure, label, make) {
  const div = element("div", { class: "plot wide", role: "group", "aria-label": label });
  figure.append(div);
  const draw = () => { const [traces, shape] = make(); window.Plotly.react(div, traces, shape, CONFIG); };
  redraw.push(draw);
  draw();
  return draw;
}
const withIds = (rows) => rows.map((row, id) => ({ ...row, id }));

function indexPage() {
  const rows = withIds(content.machines);
  const rate = (name, title) => [name, title, (r) => words.tera(r[name]), "number"];
  return new Table(rows, [
    ["title", "Machine", (r) => r.title], ["kind", "Kind", (r) => r.kind], ["hardware", "Hardware", (r) => r.hardware ?? "–"], ["date", "Measured", (r) => r.date ?? "–"],
    ["cases", "Cases", (r) => String(r.cases), "number"], rate("f32", "TFLOP/s f32"), rate("bits16", "16 bits"), rate("bits8", "8 bits"),
    ["memory", "Memory GB/s", (r) => words.giga(r.memory), "number"], ["ops", "Operations", (r) => r.ops ?? ""], ["libraries", "Libraries", (r) => r.libraries ?? ""],
  ], {
    search: (r) => [r.title, r.kind, r.hardware, r.libraries, r.ops], filters: [["kind", "Kind"], ["ops", "Operations"]],
    exported: ["title", "kind", "hardware", "date", "cases", "f32", "bits16", "bits8", "memory", "ops", "libraries"], fileName: "machines.csv",
    open: (row, text) => linkTo(`machines/${row.file}.html`, text),
  });
}

function familiesPage() {
  return new Table(withIds(content.families), [
    ["op", "Operation", (r) => r.op], ["title", "Family", (r) => r.title], ["machines", "Machines", (r) => String(r.machines), "number"], ["sizes", "Sizes", (r) => String(r.sizes), "number"], ["best", "Fastest (TFLOP/s)", (r) => words.tera(r.best), "number"], ["of", "by", (r) => r.of ?? "–"],
  ], {
    search: (r) => [r.title, r.of], filters: [["op", "Operation"]], exported: ["op", "title", "machines", "sizes", "best", "of"], fileName: "families.csv",
    open: (row, text) => linkTo(`${row.file}.html`, text),
  });
}

/* One family: a curve a machine and precision, the fastest ones first. */
const MOST_CURVES = 8;
function familyPage() {
  const rows = withIds(content.rows).map((r) => ({ ...r, title: r.machine }));
  const kinds = new Map();
  rows.forEach((r) => { const kind = `${r.machine}, ${r.precision}`; kinds.set(kind, Math.max(kinds.get(kind) || 0, r.rate ?? 1 / r.time_s)); });
  const ordered = [...kinds].sort((a, b) => b[1] - a[1]).map(([kind]) => kind);
  const rated = rows.some((r) => r.rate != null);
  if (new Set(rows.map((r) => r.size)).size > 1) {
    let first = 0;
    const figure = element("figure", {}, element("figcaption", {}, element("strong", {}, rated ? "Rate against size" : "Time against size"), ordered.length > MOST_CURVES ? `${MOST_CURVES} of ${ordered.length} machines and precisions at once, the fastest first.` : "A curve a machine and precision."));
    const draw = () => {
      const shown = new Set(ordered.slice(first, first + MOST_CURVES));
      const own = rows.filter((r) => shown.has(`${r.machine}, ${r.precision}`)).sort((a, b) => a.size - b.size);
      const traces = ordered.slice(first, first + MOST_CURVES).map((kind, i) => {
        const mine = own.filter((r) => `${r.machine}, ${r.precision}` === kind);
        return { type: "scatter", mode: "lines+markers", name: words.plain(kind), x: mine.map((r) => r.size), y: mine.map((r) => (rated ? r.rate / 1e12 : r.time_s * 1e6)), hoverinfo: "text",
          text: mine.map((r) => [r.machine, `${r.library}, ${r.precision}`, words.seconds(r.time_s), r.rate == null ? "" : `${words.tera(r.rate)} TFLOP/s`].filter(Boolean).map(words.plain).join("<br>")),
          marker: { color: COLOURS[i % 8], symbol: SYMBOLS[i % 8], size: 8 } };
      });
      return [traces, layout({ title: content.varies, ...TIMES }, log(rated ? "TFLOP/s" : "µs", PLAIN))];
    };
    if (ordered.length > MOST_CURVES) {
      const steps = Array.from({ length: Math.ceil(ordered.length / MOST_CURVES) }, (_, i) => [String(i * MOST_CURVES), `${i * MOST_CURVES + 1} to ${Math.min(ordered.length, (i + 1) * MOST_CURVES)}`]);
      figure.append(element("div", { class: "choices" }, choice("Show", steps, (v) => { first = Number(v); again(); }, "0")));
    }
    document.getElementById("top").append(figure);
    var again = plot(figure, `Rates of ${content.family} on each machine; the table below has every number.`, draw);
  }
  return new Table(rows, [
    ["size", content.varies, (r) => String(r.size), "number"], ["title", "Machine", (r) => r.machine], ["precision", "Precision", (r) => r.precision], ["library", "Library", (r) => r.library],
    ["time_s", "Time", (r) => words.seconds(r.time_s), "number"], ["rate", "TFLOP/s", (r) => words.tera(r.rate), "number"],
  ], {
    search: (r) => [r.machine, r.library, r.precision], filters: [["size", content.varies], ["precision", "Precision"], ["machine", "Machine"]],
    exported: ["machine", "precision", "library", "size", "time_s", "rate"], fileName: "family.csv",
    open: (row, text) => linkTo(`../machines/${row.file}.html`, text),
  });
}

/* Two machines: their data lie beside the page as scripts, so that it works from a folder too. */
const BITS = { f32: 32, float32: 32, tf32: 19, bf16: 16, f16: 16, f16f16: 16, float16_mixed: 16, float16_storage: 16, i8: 8, i8u8: 8, int8: 8 };
const loaded = (file) => new Promise((resolve, reject) => {
  window.deepbench ??= {};
  if (window.deepbench[file]) { resolve(window.deepbench[file]); return; }
  document.head.append(element("script", { src: `data/${file}.js`, onload: () => resolve(window.deepbench[file]), onerror: () => reject(new Error(file)) }));
});
async function comparePage() {
  const files = content.machines.map((m) => [m.file, m.title]);
  const asked = new URLSearchParams(location.search), known = new Set(files.map(([f]) => f));
  const taken = { a: known.has(asked.get("a")) ? asked.get("a") : files[0]?.[0], b: known.has(asked.get("b")) ? asked.get("b") : (files[1] || files[0])?.[0] };
  const go = () => { location.search = new URLSearchParams(taken).toString(); };
  const top = document.getElementById("top");
  const form = element("form", { "aria-label": "Two machines" }, choice("First", files, (v) => { taken.a = v; }, taken.a), choice("Second", files, (v) => { taken.b = v; }, taken.b), element("button", { type: "submit" }, "Compare"));
  form.addEventListener("submit", (event) => { event.preventDefault(); go(); });
  top.append(form);
  if (!taken.a || !taken.b) return null;
  const [a, b] = await Promise.all([loaded(taken.a), loaded(taken.b)]);
  /* The same precision where both have it, else as many bits: nobody else's bf16 is f16. */
  const keys = { exact: (r) => `${r.op}|${r.title}|${r.precision}`, bits: (r) => `${r.op}|${r.title}|${BITS[r.precision] ?? r.precision}` };
  const fastest = (data, keyOf) => {
    const best = new Map();
    data.rows.forEach((r) => { if (!best.has(keyOf(r)) || r.time_s < best.get(keyOf(r)).time_s) best.set(keyOf(r), r); });
    return best;
  };
  const matched = [], used = new Set();
  for (const keyOf of [keys.exact, keys.bits]) {
    const [left, right] = [fastest(a, keyOf), fastest(b, keyOf)];
    left.forEach((r, key) => {
      const o = right.get(key);
      if (!o || used.has(r) || used.has(o)) return;
      used.add(r).add(o);
      matched.push([r, o]);
    });
  }
  const rows = withIds(matched.map(([r, o]) => ({ op: r.op, title: r.title, precision: r.precision === o.precision ? r.precision : `${r.precision}, ${o.precision}`, first: r.time_s, second: o.time_s, ratio: o.time_s / r.time_s, library: r.library === o.library ? r.library : `${r.library}, ${o.library}`, notes: [r.notes, o.notes].filter(Boolean).join("; ") })));
  top.append(element("ul", {}, ...[
    `Ratio: time of ${b.name} over time of ${a.name}, so above 1 the second is slower. Each at its fastest library and number of threads.`,
    `${a.name}: ${a.about}`, `${b.name}: ${b.about}`,
    a.kind === "measured" && b.kind === "measured" ? "Intervals and verdicts need the samples: deepbench compare with both files." : "A published or imported time is mostly a mean without an interval, and nobody checked the answer.",
  ].map((t) => element("li", {}, t))));
  if (rows.length) {
    const whole = Math.exp(rows.reduce((sum, r) => sum + Math.log(r.ratio), 0) / rows.length);
    top.append(element("p", {}, element("strong", {}, `Over the ${rows.length} problems that both have, ${b.name} ${whole > 1 ? "takes" : "is"} ${words.significant(Math.max(whole, 1 / whole))} times as ${whole > 1 ? "long" : "fast"} as ${a.name} (geometric mean).`)));
    const mean = (own) => Math.exp(own.reduce((sum, r) => sum + Math.log(r.ratio), 0) / own.length);
    const kinds = distinct(rows.map((r) => `${r.op} ${r.precision}`));
    const line = (name, own) => element("tr", {}, element("td", {}, name), element("td", { class: "number" }, String(own.length)), element("td", { class: "number" }, words.ratio(mean(own))));
    top.append(element("div", { class: "slide", tabindex: 0, role: "region", "aria-label": "Geometric means" }, element("table", {}, element("caption", { class: "unseen" }, "Geometric means"), element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Geometric mean"), element("th", { scope: "col", class: "number" }, "Cases"), element("th", { scope: "col", class: "number" }, "Ratio"))), element("tbody", {}, line("all", rows), ...kinds.map((k) => line(k, rows.filter((r) => `${r.op} ${r.precision}` === k)))))));
    const figure = element("figure", {}, element("figcaption", {}, element("strong", {}, "Case by case")));
    top.append(figure);
    plot(figure, `Ratios of ${a.name} and ${b.name}; the table below has every number.`, () => pairChart({ published: true, cases: rows }));
  } else top.append(element("p", {}, "These two have no problem in common."));
  return new Table(rows, [
    ["op", "Operation", (r) => r.op], ["problem", "Problem", (r) => r.title], ["precision", "Precision", (r) => r.precision], ["library", "Library", (r) => r.library], ["first", a.name, (r) => words.seconds(r.first), "number"], ["second", b.name, (r) => words.seconds(r.second), "number"], ["ratio", "Ratio", (r) => words.ratio(r.ratio), "number"], ["notes", "Notes", (r) => r.notes],
  ], { search: (r) => [r.title, r.library, r.notes], filters: [["op", "Operation"], ["precision", "Precision"]], exported: ["op", "title", "precision", "library", "first", "second", "ratio", "notes"], fileName: "comparison.csv" });
}

const PAGES = { index: indexPage, families: familiesPage, family: familyPage, compare: comparePage };
Promise.resolve(PAGES[content.page]()).then(() => { document.documentElement.dataset.ready = "yes"; }, (error) => {
  document.getElementById("top").append(element("p", { class: "warning" }, `The data of ${error.message} could not be loaded; is the folder data beside this page?`));
  document.documentElement.dataset.ready = "failed";
});
