"use strict";
/* What readers take from a chart: a legend that covers nothing, the chart as SVG or PNG at the width of a paper, its
   numbers as CSV and as a table, its caption and a citation. Charts are found in the document, with whatever Plotly has
   drawn in them, so that every page has the same tools. */
(() => {
  const FAMILY = "Helvetica, Arial, sans-serif"; // a figure must look the same on another machine
  const SVG = "http://www.w3.org/2000/svg";
  const DPI = 300; // of PNG in inches
  const SWATCH = { width: 28, height: 14 };
  const MOST_IN_TABLE = 500;
  const AUTHORS = "The DeepBench authors";

  /* The light colors of page.css: exported figures have them whatever the theme of the page is. */
  const LIGHT = {
    "--back": "#ffffff",
    "--front": "#1b1f24",
    "--soft": "#59636e",
    "--line": "#d1d9e0",
    "--panel": "#f6f8fa",
    "--accent": "#0b5fad",
    "--warn": "#9a4a00",
    "--good": "#116329",
  };

  /* Widths of figures: what one column and two columns of most papers have. Fonts are 8 and 9 points there. */
  const WIDTHS = [
    ["column", "one column, 3.3 in", { inches: 3.3, font: 32 / 3 }],
    ["page", "two columns, 7 in", { inches: 7, font: 12 }],
    ["pixels", "in pixels", null],
  ];
  const LEAST_PIXELS = 240,
    MOST_PIXELS = 8000;

  /* ---- texts ---- */

  /* What `format.plain` escaped for Plotly, as text again. */
  const unescaped = (text) =>
    String(text ?? "")
      .replace(/<br>/g, " ")
      .replace(/&lt;/g, "<")
      .replace(/&gt;/g, ">")
      .replace(/&amp;/g, "&");
  /* XML has no way to write most control characters. */
  const printable = (text) => String(text).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "");
  /* A part of a file name: only lower-case letters, digits and hyphens, whatever the text contains. */
  const slug = (text, most = 40) =>
    String(text)
      .normalize("NFKD")
      .toLowerCase()
      .replace(/[^a-z0-9]+/g, "-")
      .slice(0, most)
      .replace(/^-+|-+$/g, "");
  const LATEX = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}" };
  const latex = (text) => String(text).replace(/[\\{}$&#^_~%]/g, (char) => LATEX[char] ?? `\\${char}`);
  const listed = (texts) => texts.filter(Boolean).join(", ");
  const sentence = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);

  /* ---- what a chart is about ---- */

  const hostOf = (div) => div.closest("figure") ?? div.parentElement;
  const titleOf = (div) => {
    const heading = hostOf(div).querySelector("figcaption strong") ?? hostOf(div).querySelector("h2");
    return heading?.textContent.trim() || document.title;
  };
  /* What the reader chose above the chart. `all` says nothing. */
  const choicesOf = (div) =>
    [...hostOf(div).querySelectorAll(".choices select")]
      .filter((select) => select.value !== "all")
      .map((select) => select.selectedOptions[0]?.textContent);
  const isShown = (trace) => trace.visible !== false && trace.visible !== "legendonly";
  const shownTraces = (div) => (div.data ?? []).filter(isShown);

  /* The machines of a chart: files of the page, or what a page of a site knows of them. */
  function sourcesOf(div) {
    const files = content.files ?? [],
      host = hostOf(div);
    const pair = content.pairs?.[host.closest("[data-pair]")?.dataset.pair];
    if (pair) return [pair.first, pair.second].map((name) => files.find((f) => f.name === name) ?? { name });
    const ofFigure = files[/-(\d+)$/.exec(host.id)?.[1]];
    if (ofFigure) return [ofFigure];
    if (files.length) return files;
    if (content.page === "family") {
      const drawn = shownTraces(div).map((trace) => unescaped(trace.name));
      const machines = groupBy(content.rows, (r) => r.machine);
      return [...machines]
        .filter(([machine]) => drawn.some((name) => name.startsWith(`${machine}, `)))
        .map(([name, rows]) => ({ name, about: distinct(rows.map((r) => r.library)).join("; ") }));
    }
    return window.deepbench instanceof Map ? [...window.deepbench.values()] : [];
  }

  const hardwareOf = ({ machine, name }) => machine?.card || machine?.cpu || name;
  const dateOf = (sources) => sources.map((s) => s.machine?.date).find(Boolean);
  const today = () => new Date().toISOString().slice(0, 10);
  const version = () => document.querySelector('meta[name="generator"]')?.content || "deepbench";

  /* Where and when the times of a file were measured, and with what. Of several files each has its name. */
  function factsOfSource({ kind, source, machine, name, libraries = [], about, incomplete }, length, drawn) {
    if (!machine) return [sentence(about ? `${name}: ${about}` : name)];
    const place = listed([
      machine.card,
      machine.cpu,
      machine.cores && `${machine.cores} core${machine.cores === 1 ? "" : "s"}`,
      machine.memory && machine.memory !== "–" && `${machine.memory} of memory`,
      machine.system,
    ]);
    const when = {
      measured: machine.date && `measured on ${machine.date}${machine.mode ? `, ${machine.mode} mode` : ""}`,
      imported: `times of ${source ?? "another program"}${machine.date ? `, ${machine.date}` : ""}, imported`,
      simulated: `times of ${source ?? "a simulator"}, simulated`,
    }[kind];
    const isDrawn = (l) => !drawn.length || drawn.some((title) => isOf(title, l.name));
    const versions = listed(libraries.filter(isDrawn).map((l) => [l.name, l.version].filter(Boolean).join(" ")));
    const whole = [place || name, when].filter(Boolean).join("; ");
    return [
      sentence(length > 1 ? `${name}: ${whole}` : whole),
      ...(incomplete ? [sentence(incomplete)] : []),
      ...(versions ? [sentence(`Libraries: ${versions}`)] : []),
    ];
  }

  /* Whether the title of a library, or of two that are compared, has this name: `MPICH ring`, `MKL, oneDNN`. */
  const isOf = (title, name) => title.split(/ → |, /).some((part) => part === name || part.startsWith(`${name} `));
  const valuesOf = (div, name) => distinct(shownTraces(div).flatMap((trace) => trace.meta?.columns?.[name] ?? []));
  const factsOfSources = (div, sources) =>
    sources.flatMap((source) => factsOfSource(source, sources.length, valuesOf(div, "library")));
  /* In which precisions and with how many threads the times were measured that are drawn. */
  function settingsOfTimes(div) {
    const sorted = (name) => valuesOf(div, name).sort((a, b) => collator.compare(a, b)).join(", ");
    const [precisions, threads] = [sorted("precision"), sorted("threads")];
    const texts = [
      precisions && `${precisions.includes(",") ? "Precisions" : "Precision"}: ${precisions}`,
      threads && `${precisions ? "threads" : "Threads"}: ${threads}`,
    ];
    return texts.some(Boolean) ? [`${texts.filter(Boolean).join("; ")}.`] : [];
  }

  /* The lines of the caption; the first one is the title of an exported figure. */
  function captionOf(div) {
    const sources = sourcesOf(div);
    const names = distinct(sources.map(hardwareOf));
    const machines = names.length > 2 ? `${names.length} machines` : names.join(" and ");
    const figcaption = hostOf(div).querySelector("figcaption");
    const text = [...(figcaption?.childNodes ?? [])]
      .filter((node) => node.nodeName !== "STRONG")
      .map((node) => node.textContent)
      .join("")
      .replace(/\s+/g, " ")
      .trim();
    const choices = choicesOf(div).join(", ");
    return [
      [choices ? `${titleOf(div)}: ${choices}` : titleOf(div), machines].filter(Boolean).join(" – "),
      text && sentence(text),
      ...settingsOfTimes(div),
      ...factsOfSources(div, sources),
      `Drawn by ${version()}${dateOf(sources) ? "" : ` on ${today()}`}.`,
    ]
      .filter(Boolean)
      .map(printable);
  }

  /* BibTeX of the program and of what was measured. */
  function citationOf(div) {
    const sources = sourcesOf(div);
    /* The year of the program, not that of results that others published. */
    const year = (dateOf(sources.filter((s) => s.kind === "measured")) ?? today()).slice(0, 4);
    const fields = {
      author: `{${AUTHORS}}`,
      title: "{DeepBench}: a benchmark of deep-learning kernels",
      year,
      howpublished: "Computer software",
      note: latex(`${version()}. ${titleOf(div)}. ${factsOfSources(div, sources).join(" ")}`),
    };
    const lines = Object.entries(fields).map(([name, text]) => `  ${name} = {${printable(text)}},`);
    return `@misc{${nameOf(sources)}-${year},\n${lines.join("\n")}\n}\n`;
  }

  const nameOf = (sources) => {
    const names = distinct(sources.map(hardwareOf));
    const few = names.length > 2 ? [`${names.length} machines`] : names;
    return few.map((name) => slug(name)).filter(Boolean).join("-and-") || "deepbench";
  };
  /* The name of a file without its end: machine, chart and date. */
  function fileNameOf(div) {
    const sources = sourcesOf(div);
    return [nameOf(sources), slug(titleOf(div), 60) || "chart", slug(dateOf(sources) ?? today())].join("-");
  }

  /* ---- numbers ---- */

  const axisTitle = (axis) => unescaped(axis?.title?.text ?? axis?.title ?? "");
  /* Differences of numbers that are drawn, without the digits that subtraction adds. */
  const rounded = (value) => Number(value.toPrecision(12));

  /* What is drawn, as a table: one line per point, one column per quantity with its unit. */
  function numbersOf(div) {
    const traces = shownTraces(div),
      meta = div.layout.meta ?? {};
    const x = meta.x ?? axisTitle(div.layout.xaxis),
      y = meta.y ?? axisTitle(div.layout.yaxis);
    const others = distinct(traces.flatMap((trace) => Object.keys(trace.meta?.columns ?? {})));
    const bars = traces.flatMap((trace) => (trace.error_y ? [trace.error_y.array, trace.error_y.arrayminus] : []));
    const hasIntervals = bars.some((lengths) => lengths.some(Boolean));
    const text = (value) => (typeof value === "string" ? unescaped(value) : value);
    const lines = traces.flatMap((trace) =>
      Array.from(trace.x, (value, i) => {
        const more = trace.error_y?.array[i] ?? 0,
          less = trace.error_y?.arrayminus[i] ?? 0;
        const interval = more || less ? [rounded(trace.y[i] - less), rounded(trace.y[i] + more)] : [null, null];
        return [
          unescaped(trace.name),
          ...others.map((name) => trace.meta?.columns?.[name]?.[i] ?? null),
          text(value),
          text(trace.y[i]),
          ...(hasIntervals ? interval : []),
        ];
      }),
    );
    const ends = hasIntervals ? [`low end of 95 % interval: ${y}`, `high end of 95 % interval: ${y}`] : [];
    return { headings: ["series", ...others, x, y, ...ends], lines };
  }

  /* For spreadsheets: no text that they would run as a formula. */
  function csvOf({ headings, lines }) {
    const cell = (value) => {
      const isFormula = typeof value === "string" && /^[=+\-@\t\r]/.test(value);
      const text = isFormula ? `'${value}` : String(value ?? "");
      return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    return [headings, ...lines].map((line) => line.map(cell).join(",") + "\n").join("");
  }

  function numbersTable(div) {
    const { headings, lines } = numbersOf(div);
    const shown = (value) =>
      typeof value === "number" ? String(Number.isInteger(value) ? value : Number(value.toPrecision(5))) : value ?? "";
    const columns = headings.map((title, i) =>
      (lines.some((line) => typeof line[i] === "string") ? column : number)(title, title, (line) => shown(line[i])),
    );
    const rest = lines.length - MOST_IN_TABLE;
    return [
      plainTable(`Numbers of the chart: ${titleOf(div)}`, columns, lines.slice(0, MOST_IN_TABLE)),
      ...(rest > 0 ? [element("p", {}, `${rest} more points are in the CSV file.`)] : []),
    ];
  }

  /* ---- legends ---- */

  function svgElement(name, attributes = {}, ...children) {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) if (value != null) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }

  /* The outline of a symbol as Plotly draws it. */
  function symbolPath(name, r) {
    const ring = (count, radius, turn = -90) =>
      Array.from({ length: count }, (_, i) => {
        const angle = ((turn + (360 * i) / count) * Math.PI) / 180;
        const length = typeof radius === "function" ? radius(i) : radius;
        return [length * Math.cos(angle), length * Math.sin(angle)];
      });
    const a = 0.4 * r,
      b = 1.2 * r;
    const plus = [
      ...[[b, a], [a, a], [a, b], [-a, b], [-a, a], [-b, a]],
      ...[[-b, -a], [-a, -a], [-a, -b], [a, -b], [a, -a], [b, -a]],
    ];
    const corners = {
      square: ring(4, r * Math.SQRT2, -45),
      diamond: ring(4, 1.3 * r),
      "triangle-up": [[-1.15 * r, r / 2], [1.15 * r, r / 2], [0, -r]],
      "triangle-down": [[-1.15 * r, -r / 2], [1.15 * r, -r / 2], [0, r]],
      cross: plus,
      x: plus.map(([x, y]) => [0.8 * (x - y) * Math.SQRT1_2, 0.8 * (x + y) * Math.SQRT1_2]),
      star: ring(10, (i) => (i % 2 ? 0.535 * r : 1.4 * r)),
      hexagon: ring(6, r),
    }[name];
    if (!corners) return `M${r},0A${r},${r} 0 1,1 0,${-r}A${r},${r} 0 0,1 ${r},0Z`;
    return `M${corners.map(([x, y]) => `${x.toFixed(2)},${y.toFixed(2)}`).join("L")}Z`;
  }

  const DASH_ARRAYS = { dash: "6 4", dot: "2 3", dashdot: "6 3 2 3", longdash: "9 4", longdashdot: "9 3 2 3" };
  const symbolOf = (trace) => {
    const symbol = trace.marker?.symbol;
    /* The open symbols of a series with other ones are disturbed times, which have an entry of their own. */
    return Array.isArray(symbol) ? (symbol[0] ?? "circle").replace(/-open$/, "") : symbol ?? "circle";
  };

  /* How a series looks, in a box of SWATCH. */
  function swatch({ type, mode = "", line, marker }, symbol) {
    const middle = SWATCH.height / 2,
      group = svgElement("g");
    if (type === "bar") {
      const { shape, bgcolor } = marker.pattern ?? {};
      const box = { x: 3, y: 2, width: 22, height: 10, stroke: marker.color };
      group.append(svgElement("rect", { ...box, fill: shape ? bgcolor : marker.color }));
      const stripes = { d: "M4,11L12,3M10,11L18,3M16,11L24,3", stroke: marker.color, "stroke-width": 1.5 };
      const dot = { cy: middle, r: 1.6, fill: marker.color };
      if (shape === "/") group.append(svgElement("path", stripes));
      if (shape === ".") group.append(...[8, 14, 20].map((cx) => svgElement("circle", { cx, ...dot })));
      return group;
    }
    const color = marker?.color ?? line?.color;
    if (mode.includes("lines"))
      group.append(
        svgElement("path", {
          d: `M0,${middle}H${SWATCH.width}`,
          stroke: line?.color ?? color,
          "stroke-width": line?.width ?? 2,
          "stroke-dasharray": DASH_ARRAYS[line?.dash],
          fill: "none",
        }),
      );
    if (mode.includes("markers")) {
      const open = symbol.endsWith("-open");
      group.append(
        svgElement("path", {
          d: symbolPath(symbol.replace(/-open$/, ""), 4.5),
          transform: `translate(${SWATCH.width / 2},${middle})`,
          fill: open ? "none" : color,
          stroke: open ? color : null,
          "stroke-width": open ? 1.5 : null,
        }),
      );
    }
    return group;
  }

  /* The entries of a legend; `index` is the place of the trace, null for an entry that explains a mark. */
  function legendOf(traces) {
    const entries = traces
      .map((trace, index) => ({ trace, index, name: printable(unescaped(trace.name)), symbol: symbolOf(trace) }))
      .filter(({ trace, name }) => trace.showlegend !== false && name);
    const disturbed = traces.some((trace) => trace.meta?.columns?.disturbed?.includes("yes"));
    if (!disturbed) return entries;
    const mark = { type: "scatter", mode: "markers", marker: { color: styleOf("--soft") } };
    const explanation = { index: null, name: "hollow: disturbed by other programs", symbol: "circle-open" };
    return [...entries, { trace: mark, ...explanation }];
  }

  /* A longer legend begins with so many entries, and a button shows the others. */
  const MOST_ENTRIES = 16;
  /* On a phone legends are folded, because they would take more room than the chart. */
  const narrow = window.matchMedia("(max-width: 40rem)");
  narrow.addEventListener("change", () =>
    document.querySelectorAll("details.legend").forEach((details) => {
      details.open = !narrow.matches;
    }),
  );

  /* The legend above a chart: a button per series, which shows or hides it. */
  function showLegend(div) {
    const entries = legendOf(div.data ?? []);
    /* Buttons that are made anew lose the keyboard's focus, so this happens only if the series differ. */
    const look = ({ name, symbol, trace }) => [name, symbol, trace.line, trace.marker?.color];
    const signature = JSON.stringify(entries.map(look));
    if (div.dataset.legend !== signature) {
      div.dataset.legend = signature;
      div.legend?.remove();
      div.legend = null;
      if (!entries.length) return;
      const box = ({ trace, symbol }) => {
        const { width, height } = SWATCH;
        const attributes = { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" };
        return svgElement("svg", attributes, swatch(trace, symbol));
      };
      const items = entries.map((entry) => {
        if (entry.index === null) return element("li", {}, element("span", {}, box(entry), entry.name));
        /* Series of one group have one entry. */
        const { legendgroup: group } = entry.trace;
        const isMember = (trace, i) => i === entry.index || (group && trace.legendgroup === group);
        const members = div.data.flatMap((trace, i) => (isMember(trace, i) ? [i] : []));
        const toggle = () =>
          window.Plotly.restyle(div, { visible: isShown(div.data[entry.index]) ? "legendonly" : true }, members);
        const attributes = { type: "button", title: "Show or hide", "data-trace": entry.index, onclick: toggle };
        return element("li", {}, element("button", attributes, box(entry), entry.name));
      });
      const rest = items.slice(MOST_ENTRIES);
      rest.forEach((item) => {
        item.hidden = true;
      });
      const showRest = () => {
        rest.forEach((item) => {
          item.hidden = false;
        });
        rest[0].querySelector("button")?.focus();
        all.remove();
      };
      const words = `Show all ${items.length} entries`;
      const all = element("button", { type: "button", class: "all", onclick: showRest }, words);
      div.legend = element(
        "details",
        { class: "legend", open: !narrow.matches },
        element("summary", {}, `Legend (${items.length})`),
        element("ul", { "aria-label": `Legend: ${titleOf(div)}` }, ...items),
        rest.length ? all : null,
      );
      div.before(div.legend);
    }
    div.legend?.querySelectorAll("[data-trace]").forEach((button) => {
      button.setAttribute("aria-pressed", isShown(div.data[Number(button.dataset.trace)]) ? "true" : "false");
    });
  }

  /* ---- figures ---- */

  /* A copy in which strings, such as colors, are those of the light theme. Arrays of numbers and texts stay. */
  function recolored(value, colors) {
    if (typeof value === "string") return colors.get(value) ?? value;
    if (value === null || typeof value !== "object" || ArrayBuffer.isView(value)) return value;
    if (Array.isArray(value))
      return typeof value[0] === "object" ? value.map((inner) => recolored(inner, colors)) : value;
    const copied = Object.entries(value).filter(([key]) => !key.startsWith("_"));
    return Object.fromEntries(copied.map(([key, inner]) => [key, recolored(inner, colors)]));
  }
  const lightColors = () => new Map(Object.entries(LIGHT).map(([name, color]) => [styleOf(name), color]));

  /* The traces of a figure on paper, with symbols and lines in proportion to its font. */
  function paperTraces(div, font) {
    const scale = font / 13,
      colors = lightColors();
    return shownTraces(div).map(({ meta, customdata, hovertext, text, ...trace }) => {
      const copy = recolored(trace, colors);
      if (copy.type === "bar") return { ...copy, text };
      if (copy.marker?.size) copy.marker.size *= scale;
      if (copy.line?.width) copy.line.width = Math.max(0.8, copy.line.width * scale);
      return { ...copy, hoverinfo: "skip" };
    });
  }

  function paperLayout(div, traces, width, height, font) {
    const colors = lightColors(),
      { meta, ...layout } = recolored(div.layout, colors);
    const axis = ({ range, autorange, ...rest }, name, length) => {
      const reversed = autorange === "reversed" || (Array.isArray(range) && range[0] > range[1]);
      const zoomed = autorange === false && Array.isArray(range);
      const title = { text: rest.title?.text ?? "", font: { size: font }, standoff: 0.6 * font };
      const made = { ...rest, title, automargin: true, showline: true, linecolor: LIGHT["--front"], ticks: "outside" };
      made.dtick = roomyTick(rest, decadesOf(traces, name), length, font);
      return { ...made, ...(zoomed ? { range } : { autorange: reversed ? "reversed" : true }) };
    };
    const right = meta?.longest ? 0.58 * font * meta.longest : 0;
    const hasLabels = layout.annotations?.some((label) => label.yref === "paper" && label.y === 1);
    /* A chart with panels has further axes. */
    const panels = Object.keys(layout).filter((name) => /^[xy]axis\d+$/.test(name));
    const lengths = { x: 0.75 * width, y: 1.5 * height };
    const axes = panels.map((name) => [name, axis(layout[name], name[0], lengths[name[0]])]);
    return {
      ...layout,
      width,
      height,
      showlegend: false,
      paper_bgcolor: LIGHT["--back"],
      plot_bgcolor: LIGHT["--back"],
      font: { family: FAMILY, size: font, color: LIGHT["--front"] },
      margin: { l: font, r: 1.5 * font + right, t: hasLabels ? 1.8 * font : 0.5 * font, b: font, pad: 0 },
      xaxis: axis(layout.xaxis ?? {}, "x", 0.75 * width),
      yaxis: axis(layout.yaxis ?? {}, "y", 1.5 * height),
      ...Object.fromEntries(axes),
    };
  }

  const canvas = document.createElement("canvas");
  function widthOf(text, font) {
    const context = canvas.getContext("2d");
    context.font = font;
    return context.measureText(text).width;
  }
  /* The text in lines of at most this width. */
  function wrapped(text, width, font) {
    const lines = [];
    for (let word of text.split(/\s+/)) {
      /* A word that is longer than a line is divided. */
      while (widthOf(word, font) > width && word.length > 1) {
        let end = word.length - 1;
        while (end > 1 && widthOf(word.slice(0, end), font) > width) end -= 1;
        lines.push(word.slice(0, end));
        word = word.slice(end);
      }
      const last = lines.length ? `${lines[lines.length - 1]} ${word}` : word;
      if (lines.length && widthOf(last, font) <= width) lines[lines.length - 1] = last;
      else lines.push(word);
    }
    return lines;
  }

  /* The sizes of a figure: `width` in the units of its drawing, the width that its file states, and pixels of a PNG. */
  function sizeOf(kind, pixels) {
    const known = WIDTHS.find(([name]) => name === kind)?.[2];
    if (known) {
      const { inches, font } = known,
        stated = (scale) => `${Number((scale * inches).toFixed(3))}in`;
      return { width: 96 * inches, font, stated, pixels: DPI * inches, dpi: DPI };
    }
    const wanted = Math.min(MOST_PIXELS, Math.max(LEAST_PIXELS, Math.round(pixels) || 1200));
    /* A wider picture is drawn larger, not with smaller letters. */
    const width = Math.min(wanted, 800),
      stated = (scale) => String(Math.round(scale * wanted));
    return { width, font: width < 480 ? 11 : 14, stated, pixels: wanted };
  }

  /* The figure as an SVG element: its title, the chart, and the legend below it. */
  async function figureOf(div, size) {
    const { width, font } = size,
      edge = 0.8 * font,
      inner = width - 2 * edge;
    const caption = captionOf(div),
      colors = lightColors();
    const titleFont = `bold ${1.05 * font}px ${FAMILY}`,
      title = wrapped(caption[0], inner, titleFont);
    const text = (words, x, y, more = {}) => svgElement("text", { x, y, fill: LIGHT["--front"], ...more }, words);
    let y = edge;
    const parts = title.map((line) => {
      y += 1.35 * font;
      return text(line, edge, y - 0.3 * font, { "font-weight": "bold", "font-size": 1.05 * font });
    });
    y += 0.5 * font;
    /* The chart. */
    const bars = div.layout.meta?.bars;
    const height = Math.round(bars ? (bars * 3.4 + 6) * font : Math.max(0.6 * width, 16 * font));
    const traces = paperTraces(div, font);
    const drawn = await window.Plotly.toImage(
      { data: traces, layout: paperLayout(div, traces, width, height, font), config: {} },
      { format: "svg", width, height, imageDataOnly: true },
    );
    const chart = document.importNode(new DOMParser().parseFromString(drawn, "image/svg+xml").documentElement, true);
    chart.setAttribute("y", y);
    parts.push(chart);
    y += height + 0.3 * font;
    /* The legend: entries in rows. */
    const scale = font / 13,
      gap = 0.5 * font;
    const entries = legendOf(shownTraces(div))
      .map(({ trace, name, symbol }) => ({ trace: recolored({ ...trace, meta: null }, colors), name, symbol }));
    let x = edge;
    for (const { trace, name, symbol } of entries) {
      const [start, ...rest] = wrapped(name, inner - SWATCH.width * scale - gap, `${font}px ${FAMILY}`);
      const words = rest.length ? `${start}…` : start;
      const needed = SWATCH.width * scale + gap + widthOf(words, `${font}px ${FAMILY}`);
      if (x > edge && x + needed > width - edge) {
        x = edge;
        y += 1.5 * font;
      }
      const box = svgElement("g", { transform: `translate(${x},${y}) scale(${scale})` }, swatch(trace, symbol));
      parts.push(box, text(words, x + SWATCH.width * scale + gap, y + 0.85 * font));
      x += needed + 1.5 * font;
    }
    if (entries.length) y += 1.5 * font;
    y = Math.ceil(y + 0.5 * edge);
    const root = svgElement("svg", {
      width: size.stated(1),
      height: size.stated(y / width),
      viewBox: `0 0 ${width} ${y}`,
      role: "img",
      "font-family": FAMILY,
      "font-size": font,
    });
    root.append(
      svgElement("title", {}, caption[0]),
      svgElement("desc", {}, caption.join("\n")),
      svgElement("rect", { width, height: y, fill: LIGHT["--back"] }),
      ...parts,
    );
    return { root, ratio: y / width };
  }

  const svgText = (root) => `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(root)}\n`;

  /* The figure as a PNG, which says how large it is on paper if its width is in inches. */
  async function pngOf(div, size) {
    const { root, ratio } = await figureOf(div, size);
    const width = Math.round(size.pixels),
      height = Math.round(ratio * size.pixels);
    root.setAttribute("width", width);
    root.setAttribute("height", height);
    const url = URL.createObjectURL(new Blob([svgText(root)], { type: "image/svg+xml" }));
    try {
      const image = new Image();
      image.src = url;
      await image.decode();
      const paper = element("canvas", { width, height });
      paper.getContext("2d").drawImage(image, 0, 0, width, height);
      const blob = await new Promise((resolve) => paper.toBlob(resolve, "image/png"));
      return size.dpi ? withDensity(blob, size.dpi) : blob;
    } finally {
      URL.revokeObjectURL(url);
    }
  }

  /* A PNG with a chunk `pHYs`, pixels per metre, after its header of 33 bytes. */
  async function withDensity(blob, dpi) {
    const png = await blob.arrayBuffer(),
      chunk = new DataView(new ArrayBuffer(21)),
      metre = Math.round(dpi / 0.0254);
    chunk.setUint32(0, 9);
    [..."pHYs"].forEach((char, i) => chunk.setUint8(4 + i, char.charCodeAt(0)));
    chunk.setUint32(8, metre);
    chunk.setUint32(12, metre);
    chunk.setUint8(16, 1);
    let crc = 0xffffffff;
    for (let at = 4; at < 17; at++) {
      crc ^= chunk.getUint8(at);
      for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
    }
    chunk.setUint32(17, ~crc);
    return new Blob([png.slice(0, 33), chunk.buffer, png.slice(33)], { type: "image/png" });
  }

  /* ---- the form at each chart ---- */

  function save(blob, name) {
    const url = URL.createObjectURL(blob);
    element("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  /* A text with a button that copies it. */
  function copyable(label) {
    const area = element("textarea", { readonly: true, rows: 5, spellcheck: "false" });
    const words = `Copy ${label.split(" ")[0].toLowerCase()}`;
    const button = element("button", { type: "button" }, words);
    const done = (text) => {
      button.textContent = text;
      setTimeout(() => {
        button.textContent = words;
      }, 2000);
    };
    const failed = () => {
      area.select();
      done("Please copy the selected text");
    };
    button.addEventListener("click", () =>
      navigator.clipboard ? navigator.clipboard.writeText(area.value).then(() => done("Copied"), failed) : failed(),
    );
    return { area, node: element("div", { class: "copyable" }, element("label", {}, label, area), button) };
  }

  function addTools(div) {
    const caption = copyable("Caption"),
      citation = copyable("Citation (BibTeX)");
    const status = element("p", { role: "status" });
    let kind = "page",
      type = "svg";
    const pixels = element("input", { type: "number", min: LEAST_PIXELS, max: MOST_PIXELS, step: 1, value: 1200 });
    const ownWidth = element("label", { hidden: true }, "Pixels", pixels);
    const form = element(
      "form",
      { "aria-label": `Save the chart: ${titleOf(div)}` },
      choice(
        "Width",
        WIDTHS.map(([name, text]) => [name, text]),
        (value) => {
          kind = value;
          ownWidth.hidden = value !== "pixels";
        },
        kind,
      ),
      ownWidth,
      choice(
        "Format",
        [
          ["svg", "SVG"],
          ["png", "PNG"],
        ],
        (value) => {
          type = value;
        },
        type,
      ),
      element("button", { type: "submit" }, "Save figure"),
      element(
        "button",
        {
          type: "button",
          onclick: () => save(new Blob([csvOf(numbersOf(div))], { type: "text/csv" }), `${fileNameOf(div)}.csv`),
        },
        "Save data (CSV)",
      ),
    );
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      status.textContent = "";
      const size = sizeOf(kind, Number(pixels.value)),
        name = `${fileNameOf(div)}.${type}`;
      try {
        if (type === "png") save(await pngOf(div, size), name);
        else save(new Blob([svgText((await figureOf(div, size)).root)], { type: "image/svg+xml" }), name);
        status.textContent = `Saved as ${name}`;
      } catch (error) {
        status.textContent = `The figure could not be drawn: ${error.message}`;
      }
    });
    const numbers = element("details", { class: "numbers" }, element("summary", {}, "Numbers of this chart"));
    const body = element("div", { class: "tools" }, form, status, caption.node, citation.node, numbers);
    const details = element("details", { class: "figure-tools" }, element("summary", {}, "Save, cite, numbers"), body);
    /* Texts and the table follow what is drawn while they are visible. */
    const refresh = () => {
      if (!details.open || !div.data) return;
      caption.area.value = captionOf(div).join("\n");
      citation.area.value = citationOf(div);
      numbers.replaceChildren(numbers.firstChild, ...(numbers.open ? numbersTable(div) : []));
    };
    details.addEventListener("toggle", refresh);
    numbers.addEventListener("toggle", refresh);
    div.refreshTools = refresh;
    div.after(details);
  }

  /* Every chart of the page gets its tools, and a legend once Plotly has drawn it, also charts that come later. */
  function followCharts() {
    for (const div of document.querySelectorAll(".plot:not([data-followed])")) {
      if (!div.refreshTools) addTools(div);
      if (!div.on || !div.data) continue;
      div.dataset.followed = "yes";
      div.addEventListener("pointerdown", () => {
        document.querySelectorAll(".plot.touched").forEach((other) => other.classList.remove("touched"));
        div.classList.add("touched");
      });
      const update = () => {
        showLegend(div);
        div.refreshTools();
      };
      div.on("plotly_afterplot", update);
      update();
    }
  }
  new MutationObserver(followCharts).observe(document.documentElement, { childList: true, subtree: true });
})();
