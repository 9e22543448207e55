"use strict";
/* Which GPU for my model? One step of a model on GPUs with published kernel times: its time or its cost, and how certain
   the order is. The wording is that of deepbench/gpus/reporting/ranking.py (a test compares the two). */
const content = JSON.parse(document.getElementById("content").textContent);
const money = (v) => format.significant(v, 3);
const shortCount = (v) =>
  format
    .scaled(v, [
      [1e6, "M"],
      [1e3, "k"],
      [1, ""],
    ])
    .trim();
const joined = (names) => (names.length < 2 ? names.join() : `${names.slice(0, -1).join(", ")} or ${names.at(-1)}`);

/* The GPUs of a step; a time counts only where the model fits into the memory. */
function candidatesOf(step, prices) {
  return step.gpus.map((row, i) => {
    const values = Object.fromEntries(content.row.map((name, at) => [name, row[at]]));
    const gpu = content.gpus[i],
      price = prices.get(gpu.name) ?? null;
    const c = {
      ...values,
      gpu,
      price,
      note: values.note == null ? null : content.texts[values.note],
      frameworks: content.texts[values.frameworks],
      isRanked: values.time_s != null && values.fits,
    };
    if (c.isRanked) {
      c.unitsPerS = c.units / c.time_s;
      c.cost = price == null ? null : (((price * c.devices) / 3600) * 1e6) / c.unitsPerS;
      c.joules = gpu.power_w ? (gpu.power_w * c.devices) / c.unitsPerS : null;
    }
    return c;
  });
}

function rankingOf(step, prices) {
  const candidates = candidatesOf(step, prices);
  const able = candidates.filter((c) => c.isRanked);
  const by = able.length && able.every((c) => c.cost != null) ? "cost" : "time";
  for (const c of able) {
    c.value = by === "cost" ? c.cost : c.time_s;
    c.ends = [c.low_s, c.high_s].map((end) => (c.value * end) / c.time_s);
  }
  candidates.sort((a, b) => b.isRanked - a.isRanked || (a.isRanked ? a.value - b.value : 0));
  const ranked = candidates.filter((c) => c.isRanked),
    near = ranked.slice(1).filter((c) => c.ends[0] <= ranked[0].ends[1]);
  return { step, by, candidates, ranked, near };
}

const showOf = ({ by }) => (by === "cost" ? money : format.seconds);
const valueText = (c, ranking) => {
  const show = showOf(ranking);
  return `${show(c.value)} (${show(c.ends[0])} to ${show(c.ends[1])})`;
};

function verdictOf(ranking) {
  const { step, by, ranked, near } = ranking;
  if (!ranked.length) return ["No GPU has a time of this step and holds the model."];
  const best = ranked[0];
  const what = by === "cost" ? `costs least per million ${step.unit}s` : "is the fastest";
  const lines = [`${best.gpu.title} ×${best.devices} ${what}: ${valueText(best, ranking)}.`];
  if (near.length)
    lines.push(`Not certain: ${joined(near.map((c) => c.gpu.name))} could be better, as the intervals overlap.`);
  else if (ranked.length > 1) lines.push("Certain within the intervals: no other interval reaches that of the first.");
  if (by === "time" && new Set(ranked.map((c) => c.devices)).size > 1)
    lines.push("The numbers of GPUs differ: compare costs, with a price for each GPU.");
  return lines;
}

/* A bar of each GPU with its interval; a GPU without a rank has the reason in its place. */
function barsOf(ranking) {
  const { step, by, candidates, ranked, near } = ranking;
  const most = Math.max(...ranked.map((c) => c.ends[1]));
  const share = (v) => `${((100 * v) / most).toFixed(2)}%`;
  const rows = candidates.map((c) => {
    const name = element("th", { scope: "row" }, `${c.gpu.title} ×${c.devices}`);
    if (!c.isRanked)
      return element("tr", {}, name, element("td", { colspan: 2, class: "note" }, c.note ?? "does not fit into the memory"));
    const track = element(
      "div",
      { class: "track", "aria-hidden": "true" },
      element("span", { class: "fill", style: `width: ${share(c.value)}` }),
      element("span", { class: "ends", style: `left: ${share(c.ends[0])}; width: ${share(c.ends[1] - c.ends[0])}` }),
    );
    const role = c === ranked[0] ? "best" : near.includes(c) ? "near" : null;
    return element(
      "tr",
      { class: role },
      name,
      element("td", {}, track),
      element("td", { class: "value right" }, valueText(c, ranking)),
    );
  });
  const what = by === "cost" ? `Cost of a million ${step.unit}s, in the currency of the prices` : "Time of one step";
  const hatched = near.length ? "; hatched: could be better than the first" : "";
  const head = ["GPU and their number", "Bar", "Value"].map((title) => element("th", { scope: "col" }, title));
  return element(
    "table",
    { class: "bars gpu-bars" },
    element("caption", {}, `${what}, with its interval${hatched}`),
    element("thead", { class: "unseen" }, element("tr", {}, ...head)),
    element("tbody", {}, ...rows),
  );
}

function tableOf(ranking) {
  const { step, candidates, ranked } = ranking;
  const timed = (show) => (c) => (c.isRanked ? show(c) : "–");
  const orNone = (v, show) => (v == null ? "–" : show(v));
  const over = (c) => (c === ranked[0] ? "–" : `${(c.value / ranked[0].value).toFixed(2)}×`);
  const columns = [
    column("gpu", "GPU", (c) => (c === ranked[0] ? element("strong", {}, c.gpu.name) : c.gpu.name)),
    number("devices", "GPUs"),
    number("time_s", "step", timed((c) => format.seconds(c.time_s))),
    number("low_s", "from", timed((c) => format.seconds(c.low_s))),
    number("high_s", "to", timed((c) => format.seconds(c.high_s))),
    number("units_per_s", `${step.unit}s/s`, timed((c) => shortCount(c.unitsPerS))),
    number("cost", `cost per M ${step.unit}s`, timed((c) => orNone(c.cost, money))),
    number("over_best", "× best", timed(over)),
    number("joules", `energy per ${step.unit}`, timed((c) => orNone(c.joules, (v) => `≤ ${format.significant(v, 2)} J`))),
    number("memory", "memory", (c) => (c.memory ? format.bytes(c.memory) : "–")),
    number("measured", "measured", timed((c) => format.percent(c.measured))),
    number("between", "between", timed((c) => format.percent(c.between))),
    number("modelled", "modelled", timed((c) => format.percent(c.modelled))),
    column("frameworks", "frameworks", timed((c) => c.frameworks)),
  ].filter(({ name, show }) => name === "gpu" || candidates.some((c) => show(c) !== "–"));
  return cardTable("GPUs by this step, the best first", columns, candidates);
}

/* ---- what the reader chooses */

const chosen = { model: 0 };
const prices = new Map(content.gpus.filter((g) => g.price != null).map((g) => [g.name, g.price]));
const FIELDS = [
  ["phase", "Phase"],
  ["precision", "Precision"],
  ["batch", "Sequences (batch)"],
  ["context", "Tokens of each (context)"],
];
/* What is shown at first, where the page has it. */
const FIRST = { phase: "decode", precision: "fp8", batch: 16, context: 4096 };

const stepsOf = () => content.models[chosen.model].steps;
const valuesOf = (name) => distinct(stepsOf().map((s) => s[name]));
const isChosen = (s) => FIELDS.every(([name]) => s[name] === chosen[name]);

const fields = element("div", { class: "choices" }),
  heading = element("p", { class: "note" }),
  answer = element("p", { class: "answer", role: "status" }),
  place = element("div", {}),
  refusal = element("p", { class: "mark", role: "status" });

function show() {
  const step = stepsOf().find(isChosen);
  if (!step) {
    heading.textContent = "";
    answer.textContent = "No GPU of this page has times of this model.";
    place.replaceChildren();
    return;
  }
  const ranking = rankingOf(step, prices);
  heading.textContent = step.heading;
  const text = verdictOf(ranking).join(" ");
  if (answer.textContent !== text) answer.textContent = text;
  const unpriced = ranking.ranked.filter((c) => c.cost == null).map((c) => c.gpu.name);
  const hint =
    prices.size && unpriced.length
      ? `By time, because there is no price of ${joined(unpriced)}.`
      : prices.size
        ? "Costs are those of GPUs that do nothing else; prices that you enter are neither stored nor sent."
        : "Type the price of a GPU-hour for each GPU to compare costs. Prices are neither stored nor sent.";
  const source = () => element("p", { class: "note" }, content.source);
  place.replaceChildren(barsOf(ranking), source(), tableOf(ranking), source(), element("p", { class: "note" }, hint));
}

/* The choices that the model has; what was chosen before stays, where the model has it. */
function addFields() {
  const models = content.models.map((model, i) => [String(i), model.title]);
  const parts = [
    choice(
      "Model",
      models,
      (v) => {
        chosen.model = Number(v);
        addFields();
        fields.querySelector("select").focus();
        show();
      },
      String(chosen.model),
    ),
  ];
  for (const [name, label] of FIELDS) {
    const values = valuesOf(name),
      wanted = chosen[name] ?? FIRST[name];
    chosen[name] = values.includes(wanted) ? wanted : values[0];
    const onchange = (v) => {
      chosen[name] = values.find((value) => String(value) === v);
      show();
    };
    parts.push(choice(label, values.map(String), onchange, String(chosen[name])));
  }
  fields.replaceChildren(...parts);
}

function priceField(gpu, unusable) {
  const field = element("input", {
    type: "number",
    min: 0,
    step: "any",
    inputmode: "decimal",
    autocomplete: "off",
    placeholder: "price/h",
    value: gpu.price,
    "aria-label": `Price per hour of one ${gpu.name}`,
    oninput: () => {
      const value = Number(field.value),
        isUsable = Number.isFinite(value) && value > 0;
      if (isUsable) prices.set(gpu.name, value);
      else prices.delete(gpu.name);
      if (isUsable || (field.value === "" && !field.validity.badInput)) unusable.delete(gpu.name);
      else unusable.add(gpu.name);
      field.setAttribute("aria-invalid", unusable.has(gpu.name));
      refusal.textContent = unusable.size ? `A price must be greater than 0. Not used: ${[...unusable].join(", ")}.` : "";
      show();
    },
  });
  return element("div", {}, element("span", {}, gpu.title), field);
}

const unusable = new Set();
addFields();
document.getElementById("choices").append(
  fields,
  element(
    "fieldset",
    { class: "machine-list" },
    element("legend", {}, "Price of an hour of one GPU, in any currency"),
    element("div", { role: "group", "aria-label": "Prices" }, ...content.gpus.map((gpu) => priceField(gpu, unusable))),
    refusal,
  ),
);
document.getElementById("ranking").append(heading, answer, place);
show();
document.documentElement.dataset.ready = "yes";
