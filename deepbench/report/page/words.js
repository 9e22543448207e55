"use strict";
/* Numbers to text, as deepbench/units.py has them; a test holds one against the other. */
const words = {
  significant(value, digits = 3) {
    if (value === 0) return "0";
    const rounded = Number(value.toExponential(digits - 1));
    const size = Math.abs(rounded);
    if (size >= 1) return rounded.toFixed(Math.max(0, digits - Math.trunc(size).toString().length));
    const text = rounded.toFixed(12).replace(/0+$/, "").split(".")[1] || "";
    return rounded.toFixed(Math.min(100, text.length - text.replace(/^0+/, "").length + digits));
  },
  scaled(value, units) {
    const [size, unit] = units.find(([s]) => Math.abs(value) >= s) || units[units.length - 1];
    return `${words.significant(value / size)} ${unit}`;
  },
  seconds: (v) => (v == null ? "–" : words.scaled(v, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]])),
  bytes: (v) => (v == null ? "–" : words.scaled(v, [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]])),
  joules: (v) => (v == null ? "–" : words.scaled(v, [[1, "J"], [1e-3, "mJ"], [1e-6, "µJ"], [1e-9, "nJ"]])),
  tera: (v) => (v == null ? "–" : words.significant(v / 1e12)),
  giga: (v) => (v == null ? "–" : words.significant(v / 1e9)),
  percent: (v) => (v == null ? "–" : `${(100 * v).toFixed(0)} %`),
  ratio: (v) => (v == null ? "–" : v < 10 ? v.toFixed(3) : words.significant(v)),
  plusMinus(v) {
    if (v == null) return "–";
    if (v > 1) return ">±100 %";
    return `±${(100 * v).toFixed(v < 0.1 ? 1 : 0)} %`;
  },
  /* Half of the interval as a share of the time. */
  half: (row) => (row.low_s == null || row.high_s == null ? null : (row.high_s - row.low_s) / 2 / row.time_s),
  /* With a star where it comes from inside one process, and is too narrow. */
  interval: (row) => words.plusMinus(words.half(row)) + (row.interval_of === "one process" ? "*" : ""),
  /* Plotly takes some tags in its texts for markup; what files say is none. */
  plain: (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;"),
};

/* An element with attributes and children; texts become text, never markup. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children.filter((c) => c != null));
  return made;
}

/* A select with a label; `choices` are texts, or pairs of value and text. */
function choice(label, choices, onchange, chosen) {
  const select = element("select", { onchange: () => onchange(select.value) });
  for (const c of choices) {
    const [value, text] = Array.isArray(c) ? c : [c, c];
    select.append(element("option", { value, selected: value === chosen }, text));
  }
  return element("label", {}, label, select);
}

const distinct = (values) => [...new Set(values.filter((v) => v != null))];
