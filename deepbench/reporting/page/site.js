"use strict";
/* The pages of a site next to those of machines: the index, families of problems, and two machines compared. */
const content = JSON.parse(document.getElementById("content").textContent);
const linkTo = (href, text) => element("a", { href }, text);

/* Add a chart and draw it at once; returns the function that draws it again. */
function addDrawnPlot(figure, label, makeChart) {
  const div = addPlot(figure, label, true, makeChart);
  draw(div);
  return () => draw(div);
}
const withIds = (rows) => rows.map((row, id) => ({ ...row, id }));
const geometricMean = (ratios) => Math.exp(ratios.reduce((sum, r) => sum + Math.log(r), 0) / ratios.length);

/* Which machine? Totals are lists of values in the order of `content.total`. */
function addMachinesOfSite(top) {
  const machines = content.machines.map(({ title, file, kind, applications }) => ({
    name: title,
    kind,
    href: `machines/${file}.html`,
    applications: applications.map((values) => Object.fromEntries(content.total.map((name, i) => [name, values[i]]))),
  }));
  if (!machines.some((m) => m.applications.length)) return;
  const section = element("section", {}, element("h2", {}, "Which machine?"));
  top.append(section);
  addMachines(
    section,
    machines,
    machines.map((m) => m.name),
    false,
  );
}

function indexPage() {
  addMachinesOfSite(document.getElementById("top"));
  const rate = (name, title) => number(name, title, (r) => format.tera(r[name]));
  const columns = [
    column("title", "Machine"),
    column("kind", "Source"),
    column("hardware", "Hardware", null, { full: (r) => r.hardware, wide: true }),
    column("date", "Measured"),
    number("cases", "Cases"),
    column("incomplete", "Complete", (r) => r.incomplete ?? "", { full: (r) => r.incomplete }),
    rate("f32", "TFLOP/s f32"),
    rate("bits16", "TFLOP/s 16 bits"),
    rate("bits8", "TFLOP/s 8 bits"),
    number("memory", "Memory GB/s", (r) => format.giga(r.memory)),
    column("ops", "Operations", (r) => r.ops ?? "", { shown: false, full: (r) => r.ops, wide: true }),
    column("libraries", "Libraries", (r) => r.libraries ?? "", { shown: false, full: (r) => r.libraries, wide: true }),
  ];
  return new Table(withIds(content.machines), columns, {
    search: (r) => [r.title, r.kind, r.hardware, r.libraries, r.ops],
    filters: [
      ["kind", "Source"],
      ["ops", "Operations"],
    ],
    exported: columns.map((c) => c.name),
    fileName: "machines.csv",
    open: (row, text) => linkTo(`machines/${row.file}.html`, text),
  });
}

function familiesPage() {
  const columns = [
    column("op", "Operation"),
    column("title", "Family"),
    number("machines", "Machines"),
    number("sizes", "Sizes"),
    number("best", "Highest TFLOP/s", (r) => format.tera(r.best)),
    column("of", "Machine"),
  ];
  return new Table(withIds(content.families), columns, {
    search: (r) => [r.title, r.of],
    filters: [["op", "Operation"]],
    exported: columns.map((c) => c.name),
    fileName: "families.csv",
    open: (row, text) => linkTo(`${row.file}.html`, text),
  });
}

/* One family: one curve per machine and precision, a few at a time, the fastest first. */
const MOST_CURVES = 8;
function familyPage() {
  const rows = withIds(content.rows).map((r) => ({ ...r, title: r.machine }));
  if (new Set(rows.map((r) => r.size)).size > 1) addFamilyChart(rows);
  return new Table(
    rows,
    [
      number("size", content.sweep_field),
      column("title", "Machine"),
      column("precision", "Precision"),
      column("library", "Library"),
      number("time_s", "Time", (r) => format.seconds(r.time_s)),
      number("rate", "TFLOP/s", (r) => format.tera(r.rate)),
    ],
    {
      search: (r) => [r.machine, r.library, r.precision],
      filters: [
        ["size", content.sweep_field],
        ["precision", "Precision"],
        ["machine", "Machine"],
      ],
      exported: ["machine", "precision", "library", "size", "time_s", "rate"],
      fileName: "family.csv",
      open: (row, text) => linkTo(`../machines/${row.file}.html`, text),
    },
  );
}

function addFamilyChart(rows) {
  const hasRates = rows.some((r) => r.rate != null);
  const value = (r) => (hasRates ? r.rate / 1e12 : r.time_s * 1e6);
  const curves = [...groupBy(rows, (r) => `${r.machine}, ${r.precision}`)];
  const speed = ([, members]) => Math.max(...members.map((r) => r.rate ?? 1 / r.time_s));
  curves.sort((a, b) => speed(b) - speed(a));
  let first = 0;
  const makeChart = () => [
    curves.slice(first, first + MOST_CURVES).map(([name, members], i) => {
      const sorted = [...members].sort((a, b) => a.size - b.size);
      const hover = (r) =>
        plainLines([
          r.machine,
          `${r.library}, ${r.precision}`,
          format.seconds(r.time_s),
          r.rate != null && `${format.tera(r.rate)} TFLOP/s`,
        ]);
      return {
        type: "scatter",
        ...joined(members, (r) => r.size),
        name: format.plain(name),
        x: sorted.map((r) => r.size),
        y: sorted.map(value),
        hoverinfo: "text",
        text: sorted.map(hover),
        marker: { ...markerOf(i), size: 8 },
      };
    }),
    layoutOf({ title: content.sweep_field, ...SIZES }, log(hasRates ? "TFLOP/s" : "µs", PLAIN)),
  ];
  const caption =
    curves.length > MOST_CURVES
      ? `One curve per machine and precision: ${MOST_CURVES} of ${curves.length} at a time, the fastest first.`
      : "One curve per machine and precision.";
  const figure = element(
    "figure",
    {},
    element(
      "figcaption",
      {},
      element("strong", {}, hasRates ? "Rate by problem size" : "Time by problem size"),
      caption,
    ),
  );
  document.getElementById("top").append(figure);
  let redraw = () => {};
  if (curves.length > MOST_CURVES) {
    const ranges = Array.from({ length: Math.ceil(curves.length / MOST_CURVES) }, (_, i) => [
      String(i * MOST_CURVES),
      `${i * MOST_CURVES + 1} to ${Math.min(curves.length, (i + 1) * MOST_CURVES)}`,
    ]);
    figure.append(
      element(
        "div",
        { class: "choices" },
        choice(
          "Curves",
          ranges,
          (v) => {
            first = Number(v);
            redraw();
          },
          "0",
        ),
      ),
    );
  }
  redraw = addDrawnPlot(figure, `Rates of ${content.family} on each machine. The table below has every number.`, makeChart);
}

/* Two machines. Their data are scripts next to the page, so that it also works from a folder without a server. */
const BITS = new Map([
  ["f32", 32],
  ["tf32", 19],
  ["bf16", 16],
  ["f16", 16],
  ["f16f16", 16],
  ["i8", 8],
  ["i8u8", 8],
]);
/* Maps, because a file may have the name of a property that every object has, such as constructor. */
window.deepbench ??= new Map();
const load = (file) =>
  new Promise((resolve, reject) => {
    if (window.deepbench.has(file)) {
      resolve(window.deepbench.get(file));
      return;
    }
    document.head.append(
      element("script", {
        src: `data/${file}.js`,
        onload: () => resolve(window.deepbench.get(file)),
        onerror: () => reject(new Error(file)),
      }),
    );
  });

/* Pairs of rows of the same problem, each with its fastest library. Precisions are equal, or else equally wide. */
function commonProblems(a, b) {
  const exact = (r) => `${r.op}|${r.title}|${r.precision}`,
    sameBits = (r) => `${r.op}|${r.title}|${BITS.get(r.precision) ?? r.precision}`;
  const fastest = (machine, keyOf) =>
    new Map(
      [...groupBy(machine.rows, keyOf)].map(([key, members]) => [
        key,
        members.reduce((best, r) => (r.time_s < best.time_s ? r : best)),
      ]),
    );
  const pairs = [],
    used = new Set();
  for (const keyOf of [exact, sameBits]) {
    const second = fastest(b, keyOf);
    fastest(a, keyOf).forEach((r, key) => {
      const other = second.get(key);
      if (!other || used.has(r) || used.has(other)) return;
      used.add(r).add(other);
      pairs.push([r, other]);
    });
  }
  return pairs;
}

async function comparePage() {
  const files = content.machines.map((m) => [m.file, m.title]);
  const known = new Set(files.map(([file]) => file)),
    query = new URLSearchParams(location.search);
  const fromQuery = (name, fallback) => (known.has(query.get(name)) ? query.get(name) : fallback?.[0]);
  const selected = { a: fromQuery("a", files[0]), b: fromQuery("b", files[1] || files[0]) };
  const top = document.getElementById("top");
  const form = element(
    "form",
    { "aria-label": "Two machines" },
    choice(
      "First",
      files,
      (v) => {
        selected.a = v;
      },
      selected.a,
    ),
    choice(
      "Second",
      files,
      (v) => {
        selected.b = v;
      },
      selected.b,
    ),
    element("button", { type: "submit" }, "Compare"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.search = new URLSearchParams(selected).toString();
  });
  top.append(form);
  if (!selected.a || !selected.b) return null;
  const [a, b] = await Promise.all([load(selected.a), load(selected.b)]);
  const joined = (one, other, separator = ", ") => distinct([one, other]).filter(Boolean).join(separator);
  const rows = withIds(
    commonProblems(a, b).map(([r, o]) => ({
      op: r.op,
      title: r.title,
      precision: joined(r.precision, o.precision),
      library: joined(r.library, o.library),
      first: r.time_s,
      second: o.time_s,
      firstText: format.time(r),
      secondText: format.time(o),
      ratio: ratioOf(o, r),
      notes: [
        joined(r.notes, o.notes, "; "),
        r.disturbed && `no ratio: the time of ${a.name} is disturbed`,
        o.disturbed && `no ratio: the time of ${b.name} is disturbed`,
      ]
        .filter(Boolean)
        .join("; "),
    })),
  );
  top.append(
    element(
      "ul",
      {},
      ...[
        `faster, slower: time of ${b.name} compared with time of ${a.name}. ` +
          "Each machine with its fastest library and number of threads.",
        `${a.name}: ${a.about}`,
        `${b.name}: ${b.about}`,
        a.kind === "measured" && b.kind === "measured"
          ? "For confidence intervals and verdicts, run deepbench compare with both files."
          : "Imported times are mostly means without an interval, and nobody checked the answers.",
      ].map((text) => element("li", {}, text)),
    ),
  );
  if (rows.length) addComparison(top, a, b, rows);
  else top.append(element("p", {}, "These two machines have no problem in common."));
  const columns = [
    column("op", "Operation"),
    column("title", "Problem"),
    column("precision", "Precision"),
    column("library", "Library"),
    number("first", a.name, (r) => r.firstText),
    number("second", b.name, (r) => r.secondText),
    number("ratio", `${b.name} is`, (r) => format.fasterOrSlower(r.ratio), null, { wide: true }),
    column("notes", "Notes", null, { full: (r) => r.notes, wide: true }),
  ];
  return new Table(rows, columns, {
    search: (r) => [r.title, r.library, r.notes],
    filters: [
      ["op", "Operation"],
      ["precision", "Precision"],
    ],
    exported: columns.map((c) => c.name),
    fileName: "comparison.csv",
  });
}

function addComparison(top, a, b, rows) {
  const trusted = (members) => members.filter((r) => r.ratio != null);
  const mean = (members) => (members.length ? geometricMean(members.map((r) => r.ratio)) : null);
  const counted = trusted(rows),
    count = rows.length - counted.length;
  const left = count ? `; ${count} with a disturbed time left out` : "";
  const headline =
    2 * counted.length < rows.length
      ? `${count} of ${rows.length} common problems have a disturbed time; no overall ratio.`
      : `${format.speedSentence(b.name, mean(counted), a.name)} ` +
        `(geometric mean over ${counted.length} common problems${left}).`;
  top.append(element("p", {}, element("strong", {}, headline)));
  const means = [["all", rows], ...groupBy(rows, (r) => `${r.op} ${r.precision}`)].map(([name, members]) => ({
    name,
    cases: members.length,
    disturbed: members.length - trusted(members).length,
    ratio: mean(trusted(members)),
  }));
  top.append(
    plainTable(
      "Geometric means",
      [
        column("name", "Geometric mean"),
        number("cases", "Cases"),
        number("disturbed", "Disturbed, left out"),
        number("ratio", `${b.name} is`, (m) => format.fasterOrSlower(m.ratio)),
      ],
      means,
    ),
  );
  const figure = element("figure", {}, element("figcaption", {}, element("strong", {}, `${b.name} compared with ${a.name}, case by case`)));
  top.append(figure);
  addDrawnPlot(figure, `How much faster or slower ${b.name} is than ${a.name}. The table below has every number.`, () =>
    pairChart({ published: true, cases: rows, first: a.name, second: b.name }),
  );
}

const PAGES = { index: indexPage, families: familiesPage, family: familyPage, compare: comparePage };
Promise.resolve(PAGES[content.page]()).then(
  () => {
    document.documentElement.dataset.ready = "yes";
  },
  (error) => {
    document
      .getElementById("top")
      .append(
        element(
          "p",
          { class: "warning" },
          `The data of ${error.message} could not be loaded. The folder data must lie next to this page.`,
        ),
      );
    document.documentElement.dataset.ready = "failed";
  },
);
