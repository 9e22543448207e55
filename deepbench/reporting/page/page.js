"use strict";
/* The data of the page → charts and table. */
const content = JSON.parse(document.getElementById("content").textContent);

/* The rows of all files: one object per case. */
const fieldNames = distinct(content.files.flatMap((file) => Object.keys(file.fields)));
const rows = content.files.flatMap((file, fileIndex) => {
  const lists = [
    ...Object.entries(file.columns),
    ...Object.entries(file.fields).map(([name, values]) => [fieldKey(name), values]),
  ];
  return Array.from({ length: lists.length ? lists[0][1].length : 0 }, (_, index) => {
    const row = { file: file.name, fileIndex, index };
    for (const [name, values] of lists) row[name] = values[index];
    return row;
  });
});
rows.forEach((row, id) => {
  row.id = id;
});
groupBy(rows, (r) => r.fileIndex).forEach(withFamilies);
const rowsOf = (fileIndex) => rows.filter((r) => r.fileIndex === fileIndex);
const severalFiles = content.files.length > 1;

function addChart(chart, fileIndex) {
  const file = content.files[fileIndex],
    all = rowsOf(fileIndex),
    selected = {};
  const choices = (chart.choices ? chart.choices(all, file) : []).map(([name, label, values]) => [
    name,
    label,
    values.map((v) => (Array.isArray(v) ? v : [v, v])),
  ]);
  if (choices.some(([, , values]) => !values.length)) return;
  choices.forEach(([name, , values]) => {
    selected[name] = values[0][0];
  });
  const selectedRows = () => chart.rows(all, selected, file);
  const remarks = () => (chart.remarks?.(all, selected, file) ?? []).filter(Boolean);
  if (!selectedRows().length && !remarks().length) return;
  const title = chart.title + (severalFiles ? ` (${file.name})` : "");
  const figure = element(
    "figure",
    { class: chart.wide ? "wide" : null, id: `${chart.id}-${fileIndex}` },
    element("figcaption", {}, element("strong", {}, title), chart.text),
  );
  const thinning = element("span", {});
  const makeChart = () => {
    const every = selectedRows(),
      some = thinned(every);
    const captions = [
      some.length < every.length &&
        `The chart shows 1 in ${Math.ceil(every.length / MOST_POINTS)} of ${every.length} points.`,
      ...(chart.remarks ? remarks() : [disturbedRemark(every)]),
    ];
    thinning.textContent = captions.filter(Boolean).map((text) => ` ${text}`).join("");
    return chart.draw(some, selected, file);
  };
  figure.firstChild.append(thinning);
  const bar = element("div", { class: "choices" });
  choices
    .filter(([, , values]) => values.length > 1)
    .forEach(([name, label, values]) =>
      bar.append(
        choice(
          label,
          values,
          (v) => {
            selected[name] = v;
            draw(div);
          },
          selected[name],
        ),
      ),
    );
  if (bar.children.length) figure.append(bar);
  if (!selectedRows().length) {
    thinning.textContent = ` ${remarks().join(" ")}`;
    document.getElementById("charts").append(figure);
    return;
  }
  const div = addPlot(
    figure,
    `${chart.title}. ${chart.text} The table below has every number.`,
    chart.tall,
    makeChart,
    (id) => id != null && showDetails(rows[id]),
  );
  document.getElementById("charts").append(figure);
  document.getElementById("sections").append(element("a", { href: `#${chart.id}-${fileIndex}` }, title));
}

/* ---- table ---- */

const POSITIONS = ["fastest", "tie", "open", "only", null];
/* Columns that only some files need. */
const varies = (name) => distinct(rows.map((r) => r[name])).length > 1;
const printed = true;
const flopRate = (r) => format.rate(r, "flop_per_s"),
  bandwidth = (r) => format.rate(r, "bus_bytes_per_s") ?? format.rate(r, "bytes_per_s"),
  shareOf = (r) => format.rate(r, "share_of_limit");
const COLUMNS = [
  column("op", "Operation", null, { key: true, printed }),
  column("title", "Problem", null, { printed }),
  column("library", "Library", null, { key: true, printed }),
  ...(severalFiles ? [column("file", "File", null, { printed, full: (r) => r.file })] : []),
  column("precision", "Precision", null, { printed }),
  ...(varies("threads") ? [number("threads", "Threads", null, null, { printed })] : []),
  ...(varies("device") ? [column("device", "Device", null, { printed })] : []),
  number("time_s", "Time", format.time, null, { printed }),
  number("half", "±", format.interval, format.halfWidth, { printed }),
  ...(rows.some((r) => r.quantization_error != null)
    ? [number("quantization_error", "Answer error", (r) => format.precisePercent(r.quantization_error))]
    : []),
  number("flop_per_s", "TFLOP/s", (r) => format.tera(flopRate(r)), flopRate, { printed }),
  number("bytes_per_s", "GB/s", (r) => format.giga(bandwidth(r)), bandwidth),
  column("limited_by", "Limited by"),
  number("share_of_limit", "% of limit", (r) => format.percent(shareOf(r)), shareOf, { printed }),
  /* Where only one library has a time, none is the fastest. */
  column("position", "Fastest", (r) => (r.position === "only" ? "" : (r.position ?? "")), {
    value: (r) => POSITIONS.indexOf(r.position),
    shown: !severalFiles,
  }),
  column("status", "Status", flagsText, { printed, full: statusText }),
  column("notes", "Notes", (r) => r.notes ?? "", { full: (r) => r.notes, shown: !severalFiles, wide: true }),
  column("applications", "Applications", null, { shown: false, full: (r) => r.applications, wide: true }),
  column("version", "Version", null, { shown: false }),
];

/* The fields in which the problems of one operation differ; none while several operations are shown. */
function fieldsOf(selectedRows) {
  const ops = distinct(selectedRows.map((r) => r.op));
  if (ops.length !== 1) return [];
  /* An operation may have the name of a property that every object has, such as constructor. */
  const ofFile = (file) => (Object.hasOwn(file.fields_of, ops[0]) ? file.fields_of[ops[0]] : []);
  const names = distinct(content.files.flatMap(ofFile));
  return names.filter((name) => distinct(selectedRows.map((r) => r[fieldKey(name)])).length > 1);
}

function addTable() {
  const names = distinct(content.files.flatMap((file) => Object.keys(file.columns)));
  return new Table(rows, COLUMNS, {
    search: (r) => [r.case, r.title, r.library, r.applications, r.notes, r.reason],
    filters: [
      ...(severalFiles ? [["file", "File"]] : []),
      ["op", "Operation"],
      ["precision", "Precision"],
      ["library", "Library"],
      ["applications", "Application", (r) => r.applications?.split("; ") ?? []],
      ["threads", "Threads"],
      ["device", "Device"],
      ["limited_by", "Limited by"],
      ["status", "Status"],
    ],
    sizes: [
      ["flop", "work (GFLOP)", (r) => (r.flop == null ? null : r.flop / 1e9)],
      ["traffic_bytes", "data (MiB)", (r) => (r.traffic_bytes == null ? null : r.traffic_bytes / 2 ** 20)],
    ],
    isPrinted: isFastest,
    exported: ["file", ...names, ...fieldNames.filter((name) => !names.includes(name)).map(fieldKey)],
    fileName: "deepbench.csv",
    fieldsOf,
    open: (row, text) =>
      element("button", { type: "button", title: `Details of ${row.title}`, onclick: () => showDetails(row) }, text),
    decorate(td, name, row) {
      if (name === "library") td.classList.toggle("first", row.position === "fastest");
      if (name === "status") td.classList.toggle("bad", Boolean(row.disturbed) || !MEASURED.includes(row.status));
      if (name !== "share_of_limit") return;
      td.querySelector(".bar")?.remove();
      if (shareOf(row) != null)
        td.prepend(element("span", { class: "bar", style: `width:${Math.round(30 * Math.min(1, shareOf(row)))}px` }));
    },
  });
}

/* ---- details of one case ---- */

function timeText(row) {
  if (row.time_s == null) return "–";
  const parts = [];
  if (row.low_s != null) {
    const warning = row.interval_of === "one process" ? " (from one process, so too narrow)" : "";
    parts.push(`95 % confidence interval ${format.seconds(row.low_s)} to ${format.seconds(row.high_s)}${warning}`);
  }
  if (row.processes != null && row.status === "ok")
    parts.push(`${row.processes} process${row.processes === 1 ? "" : "es"}`);
  if (row.disturbed) parts.push("disturbed by other programs: do not trust this time");
  if (row.clean_fraction != null) parts.push(`${format.percent(row.clean_fraction)} of samples undisturbed`);
  return [format.time(row), ...parts].join(", ");
}

/* The status in a word or two; `statusText` has the reason. */
function flagsText(row) {
  const status = row.status.replaceAll("_", " ");
  return row.disturbed ? (row.status === "ok" ? "disturbed" : `${status}, disturbed`) : status;
}

function statusText(row) {
  const status = row.status.replaceAll("_", " ");
  return row.reason ? `${status}: ${row.reason}` : status;
}

function factsOf(row) {
  const rates = [
    row.flop_per_s && format.flop(row.flop_per_s, "/s"),
    row.bytes_per_s && format.bandwidth(row.bytes_per_s),
    row.bus_bytes_per_s && `${format.bandwidth(row.bus_bytes_per_s)} bus bandwidth`,
  ].filter((rate) => rate && !row.disturbed);
  const flop = row.flop ? `${format.flop(row.flop)}, ` : "";
  const share = `${format.shareOfLimit(row)} (share of its time at each limit: ${row.limit_evidence})`;
  return [
    ["File", severalFiles ? row.file : null],
    ["Status", statusText(row)],
    ["Time per call", timeText(row)],
    ["First call", row.first_call_s == null ? null : format.seconds(row.first_call_s)],
    ["Work", row.traffic_bytes == null ? null : `${flop}${format.bytes(row.traffic_bytes)} of minimum memory traffic`],
    ["Rate", rates.join(", ") || "–"],
    ["Limited by", row.limited_by ? [row.limited_by, row.disturbed ? null : share].filter(Boolean).join(", ") : "–"],
    ["Library", `${row.library} ${row.version ?? ""}`],
    ["Implementation", row.implementation],
    [
      "Answer error",
      row.quantization_error == null
        ? null
        : `${format.precisePercent(row.quantization_error)} from the result of the weights before quantization`,
    ],
    ["Energy", row.joules_per_call == null ? null : `${format.joules(row.joules_per_call)} per call`],
    ["Memory", row.peak_memory_bytes == null ? null : `${format.bytes(row.peak_memory_bytes)} peak of the process`],
    ["Applications", row.applications],
    ["Notes", row.notes],
  ].filter(([, value]) => value);
}

/* `change` comes first: what a comparison says about the case. */
function showDetails(row, change) {
  const dialog = document.getElementById("details"),
    samples = content.files[row.fileIndex].samples[row.index] || [];
  const copyFailed = () => {
    copy.textContent = "Please select and copy it";
  };
  const copy = element(
    "button",
    {
      type: "button",
      onclick: () =>
        navigator.clipboard
          ? navigator.clipboard.writeText(row.command).then(() => {
              copy.textContent = "Copied";
            }, copyFailed)
          : copyFailed(),
    },
    "Copy",
  );
  dialog.replaceChildren(
    element(
      "div",
      { class: "dialog-head" },
      element("h2", { id: "details-title", tabindex: -1 }, `${row.op}: ${row.title}, ${row.precision}, ${row.library}`),
      element("button", { type: "button", onclick: () => dialog.close() }, "Close"),
    ),
    change ?? "",
    element("dl", {}, ...factsOf(row).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])),
    row.command ? element("p", {}, "To measure it again: ", element("code", {}, row.command), " ", copy) : "",
  );
  dialog.showModal();
  /* The browser would choose the first button, which is at the end of a long text. */
  dialog.querySelector("h2").focus();
  if (samples.some((s) => s.length > 1)) {
    const div = element("div", { class: "plot", role: "group", "aria-label": "Samples of each process" });
    div.makeChart = () => samplesChart(samples, row);
    dialog.append(div);
    draw(div);
    dialog.addEventListener("close", () => drawn.delete(div), { once: true });
  }
  dialog.scrollTop = 0;
}

/* ---- the page ---- */

/* On a site that has a history, the page of a machine has a link to the part about this machine. */
function addHistory() {
  const place = document.getElementById("history"),
    text = window.deepbenchHistories?.get(place?.dataset.machine);
  if (!text) return;
  place.append("History: ", element("a", { href: `../history.html?machine=${place.dataset.machine}` }, text));
  place.hidden = false;
}

addHistory();
addChanges();
addFirstScreens();

document.querySelectorAll("[data-pair]").forEach((parent) => {
  const pair = content.pairs[Number(parent.dataset.pair)];
  if (!pair.cases.length) return;
  const interval = (m) =>
    m.low == null ? "–" : format.byFactor(m.low, m.high).map(format.fasterOrSlower).join(" to ");
  parent.append(
    plainTable(
      `Geometric means: ${pair.first} and ${pair.second}`,
      [
        column("geometric mean", "Geometric mean"),
        number("cases", "Cases"),
        ...(pair.published
          ? [number("disturbed", "Disturbed, left out")]
          : [number("undecided", "Undecided")]),
        number("ratio", `${pair.second} is`, (m) => format.fasterOrSlower(m.ratio)),
        column("low", "95 % interval", interval),
      ],
      pair.means,
    ),
  );
  const figure = element(
    "figure",
    { class: "wide" },
    element(
      "figcaption",
      {},
      element("strong", {}, `${pair.second} compared with ${pair.first}, case by case`),
      pair.published
        ? "Bars: 95 % confidence intervals of this file's times; published times have none."
        : "Bars: 95 % confidence intervals.",
    ),
  );
  parent.append(figure);
  addPlot(
    figure,
    `Each case: how much faster or slower ${pair.second} is than ${pair.first}. The geometric means are in the table above.`,
    true,
    () => pairChart(pair),
    (at) => at != null && showChange(pair, pair.cases[at]),
  );
});
content.files.forEach((_, fileIndex) => CHARTS.forEach((chart) => addChart(chart, fileIndex)));
document.getElementById("sections").append(element("a", { href: "#cases" }, "All cases"));
if (!document.querySelector("#charts figure")) document.querySelector(".contents [href='#charts']").remove();
const table = addTable();
plotlyReady.then(() => {
  document.documentElement.dataset.ready = "yes";
});
