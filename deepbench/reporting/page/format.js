"use strict";
/* Numbers as text, exactly as deepbench/core/units.py writes them (a test compares the two); helpers for elements. */
const SECONDS = [
  [1, "s"],
  [1e-3, "ms"],
  [1e-6, "µs"],
  [1e-9, "ns"],
];
const format = {
  significant(value, digits = 3) {
    if (value === 0) return "0";
    const rounded = Number(value.toExponential(digits - 1));
    const size = Math.abs(rounded);
    if (size >= 1) return rounded.toFixed(Math.max(0, digits - Math.trunc(size).toString().length));
    const decimals = rounded.toFixed(12).replace(/0+$/, "").split(".")[1] || "";
    return rounded.toFixed(Math.min(100, decimals.length - decimals.replace(/^0+/, "").length + digits));
  },
  scaled(value, units, digits = 3) {
    const [size, unit] = units.find(([s]) => Math.abs(value) >= s) || units[units.length - 1];
    return `${format.significant(value / size, digits)} ${unit}`;
  },
  seconds: (v) => (v == null ? "–" : format.scaled(v, SECONDS)),
  /* An upper bound in two digits, rounded up. */
  atMost(v) {
    if (v == null) return "–";
    const unit = 10 ** (Math.floor(Math.log10(v)) - 1);
    return `≤ ${format.scaled(Math.ceil((v / unit) * (1 - 1e-9)) * unit, SECONDS, 2)}`;
  },
  /* The time of a case or a total: an upper bound where other programs disturbed it. */
  time: (row) => (row.disturbed ? format.atMost(row.time_s) : format.seconds(row.time_s)),
  /* Of an upper bound of the time, rates and shares would be lower bounds. */
  rate: (row, name) => (row.disturbed ? null : row[name]),
  bytes: (v) =>
    v == null
      ? "–"
      : format.scaled(v, [
          [2 ** 40, "TiB"],
          [2 ** 30, "GiB"],
          [2 ** 20, "MiB"],
          [2 ** 10, "KiB"],
          [1, "B"],
        ]),
  joules: (v) =>
    v == null
      ? "–"
      : format.scaled(v, [
          [1, "J"],
          [1e-3, "mJ"],
          [1e-6, "µJ"],
          [1e-9, "nJ"],
        ]),
  /* Work, or with "/s" a rate. */
  flop: (v, suffix = "") =>
    format.scaled(v, [
      [1e12, `TFLOP${suffix}`],
      [1e9, `GFLOP${suffix}`],
      [1e6, `MFLOP${suffix}`],
      [1e3, `kFLOP${suffix}`],
      [1, `FLOP${suffix}`],
    ]),
  bandwidth: (v) =>
    format.scaled(v, [
      [1e12, "TB/s"],
      [1e9, "GB/s"],
      [1e6, "MB/s"],
      [1e3, "kB/s"],
    ]),
  tera: (v) => (v == null ? "–" : format.significant(v / 1e12)),
  giga: (v) => (v == null ? "–" : format.significant(v / 1e9)),
  percent: (v) => (v == null ? "–" : `${(100 * v).toFixed(0)} %`),
  /* Two significant digits, where small shares differ. */
  precisePercent: (v) => (v == null ? "–" : `${Number((100 * v).toPrecision(2))} %`),
  /* A factor of at least 1; up to 1.25 as a percentage. */
  howMuch: (factor) => (factor > 1.25 ? `${format.significant(factor)}×` : `${(100 * (factor - 1)).toFixed(1)} %`),
  /* The share of a case's limit; a limit that was measured too low has none. */
  shareOfLimit: (row) =>
    row.share_of_limit == null
      ? "no share, because the nearest limit was measured too low"
      : `${format.percent(row.share_of_limit)} of the nearest limit`,
  /* A ratio of times in words: the time of what they are about over the time that it is compared with. */
  fasterOrSlower(ratio) {
    if (ratio == null) return "–";
    const more = format.howMuch(Math.max(ratio, 1 / ratio));
    return more === "0.0 %" ? "as fast" : `${more} ${ratio < 1 ? "faster" : "slower"}`;
  },
  /* An interval of ratios in the order of its factors: of faster ones the highest ratio is the smallest factor. */
  byFactor: (low, high) => (high < 1 ? [high, low] : [low, high]),
  verdict: (name) => (name === "cannot tell" ? "undecided" : name),
  speedSentence(subject, ratio, other) {
    const words = format.fasterOrSlower(ratio);
    return `${subject} is ${words} ${words === "as fast" ? "as" : "than"} ${other}`;
  },
  text: (v) => (v == null ? "–" : String(v)),
  plusMinus(v) {
    if (v == null) return "–";
    if (v > 1) return ">±100 %";
    return `±${(100 * v).toFixed(v < 0.1 ? 1 : 0)} %`;
  },
  /* Half the width of the confidence interval as a share of the time. */
  halfWidth: (row) => (row.low_s == null || row.high_s == null ? null : (row.high_s - row.low_s) / 2 / row.time_s),
  /* The star marks an interval from one process, which is too narrow. */
  interval: (row) => format.plusMinus(format.halfWidth(row)) + (row.interval_of === "one process" ? "*" : ""),
  /* Plotly reads some tags in its texts as markup; texts of files must stay texts. */
  plain: (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;"),
};

/* An element with attributes and children; strings become text, never markup. */
function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value != null) node.setAttribute(key, value);
  }
  node.append(...children.filter((c) => c != null));
  return node;
}

/* A labelled select; `options` are texts, or pairs of value and text. */
function choice(label, options, onchange, selected) {
  const select = element("select", { onchange: () => onchange(select.value) });
  for (const option of options) {
    const [value, text] = Array.isArray(option) ? option : [option, option];
    select.append(element("option", { value, selected: value === selected }, text));
  }
  return element("label", {}, label, select);
}

const distinct = (values) => [...new Set(values.filter((v) => v != null))];
