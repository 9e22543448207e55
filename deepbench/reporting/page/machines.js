"use strict";
/* Which machine? Machines that the reader chooses, by application: time, cost and energy, and how certain the order
   is. The wording is that of deepbench/reporting/ranking.py (a test compares the two). */
const applicationTitle = (a) => `${a.application} (${a.suite.replace("deepbench/", "")})`;
const small = (text) => element("span", { class: "note" }, text);
const markText = (text) => element("span", { class: "mark" }, text);

/* A pass calls each kernel once, or as often as a model does. Costs are of a million passes, in the currency of the prices. */
const costOf = (place) =>
  place.total?.time_s == null || !place.machine.price ? null : ((1e6 * place.total.time_s) / 3600) * place.machine.price;
const VALUES = {
  time: {
    title: "time",
    cells: "time of one pass",
    of: (place) => place.total?.time_s ?? null,
    show: (v, total) => format.time({ time_s: v, disturbed: total.disturbed }),
  },
  cost: {
    title: "cost",
    cells: "cost of a million passes",
    of: costOf,
    show: (v) => (v == null ? "no price" : format.significant(v)),
  },
  energy: {
    title: "energy",
    cells: "energy of one pass",
    of: (place) => place.total?.joules ?? null,
    show: format.joules,
  },
};

/* Totals that are trusted come first, then disturbed ones, then sums over some of the kernels, the most first. */
const standingOf = (a) => (a == null ? 3 : a.time_s == null ? 2 : a.disturbed ? 1 : 0);
const byStanding = (a, b) =>
  standingOf(a) - standingOf(b) ||
  (a.time_s != null ? a.time_s - b.time_s : b.measured / b.kernels - a.measured / a.kernels);

/* Each machine with its best precision that competes and its best number of threads. */
function placesOf(machines, title, competes) {
  return machines.map((machine) => {
    const totals = machine.applications.filter((a) => applicationTitle(a) === title);
    const total = totals.filter(competes).sort(byStanding)[0] ?? null;
    return { machine, total, hasKernels: totals.some((a) => a.measured) };
  });
}

/* A total with disturbed times is an upper bound: it is ranked if it is the only one, and below all others in their
   intervals. Energies are no such bound, because a disturbed process may need less. */
function markBound(places, by) {
  const disturbed = places.filter((p) => p.total?.disturbed && p.total.time_s != null),
    trusted = places.filter((p) => p.isRanked);
  if (by === "energy" || disturbed.length !== 1 || !trusted.length || disturbed[0].value == null) return;
  const hasInterval = (p) => p.total.low_s != null && p.total.high_s != null;
  const low = (p) => (hasInterval(p) ? (p.value * p.total.low_s) / p.total.time_s : p.value);
  const isBelow = trusted.every((p) => disturbed[0].value < low(p));
  Object.assign(disturbed[0], { isBound: isBelow, isRanked: isBelow });
}

function rankingOf(machines, title, competes, by) {
  const value = VALUES[by].of;
  const isRanked = (p) => standingOf(p.total) === 0 && value(p) != null;
  const places = placesOf(machines, title, competes).map((p) => ({ ...p, isRanked: isRanked(p), value: value(p) }));
  markBound(places, by);
  places.sort(
    (p, q) =>
      q.isRanked - p.isRanked ||
      (p.isRanked
        ? p.value - q.value
        : standingOf(p.total) - standingOf(q.total) || (p.total && q.total ? byStanding(p.total, q.total) : 0)),
  );
  const ranked = places.filter((p) => p.isRanked);
  ranked.forEach((p, i) => {
    p.rank = i + 1;
    p.ratio = i ? p.value / ranked[0].value : null;
    /* Times and costs have intervals; energies have none. */
    if (by !== "energy" && !p.isBound && p.total.low_s != null && p.total.high_s != null)
      p.interval = [p.total.low_s, p.total.high_s].map((end) => (p.value * end) / p.total.time_s);
  });
  for (const p of ranked.slice(1))
    if (p.interval && ranked[0].interval)
      p.ratios = [p.interval[0] / ranked[0].interval[1], p.interval[1] / ranked[0].interval[0]];
  return { title, by, places, ranked };
}

function comparedWithBest(best, other) {
  if (best.isBound) return "certain";
  if (!best.interval || !other.interval) return "no interval";
  if (other.interval[0] <= best.interval[1]) return "overlap";
  const single = best.total.single_process || other.total.single_process;
  return single && Math.abs(Math.log(other.ratio)) <= Math.log(1.1) ? "one process" : "certain";
}
/* How certain it is that the first one is better than the second. */
const certaintyOf = ({ ranked }) => (ranked.length > 1 ? comparedWithBest(ranked[0], ranked[1]) : null);

/* Whether a machine could be the best. Without an interval that is so within 10 %, as with one process. */
const isNear = (best, other) => (other.interval?.[0] ?? other.value) <= 1.1 * (best.interval?.[1] ?? best.value);
const couldBeBest = ({ ranked }) =>
  ranked.slice(1).filter((p) => comparedWithBest(ranked[0], p) !== "certain" && isNear(ranked[0], p));
const bestText = (ranking) => (couldBeBest(ranking).length ? "best?" : "best");

const WHY_NEAR = { overlap: "intervals overlap", "one process": "one process, near", "no interval": "no interval, near" };
const MORE_ROUNDS = "More rounds may decide: deepbench run --rounds N, or --resume of a run with --budget.";

/* Whether the order is uncertain and can be measured again. Imported times and energies stay without an interval. */
function moreRoundsHelp(ranking) {
  const near = couldBeBest(ranking),
    again = [...ranking.ranked.slice(0, 2), ...near].every((p) => p.interval || p.machine.kind === "measured");
  return ranking.by !== "energy" && again && (certaintyOf(ranking) !== "certain" || near.length > 0);
}

function listed(names) {
  const shown = names.length > 4 ? [...names.slice(0, 3), `${names.length - 3} others`] : names;
  return shown.length === 1 ? shown[0] : `${shown.slice(0, -1).join(", ")} and ${shown.at(-1)}`;
}

/* The ratio is the value of the second machine over that of the best: the figure of the table. */
function orderSentence(best, second, ratio, by) {
  if (by === "time") return format.speedSentence(best, 1 / ratio, second);
  const more = ratioText(ratio, by),
    verb = by === "cost" ? "costs" : "needs";
  if (more === "0 % more") return `${second} ${verb} as much${by === "cost" ? "" : " energy"} as ${best}`;
  if (ratio < 2) return `${second} ${verb} ${more}${by === "cost" ? "" : " energy"} than ${best}`;
  return `${second} ${verb} ${more.replace(`the ${by}`, `as much${by === "cost" ? "" : " energy"}`)} as ${best}`;
}

function certaintyText(ranking) {
  const pair = ranking.ranked.slice(0, 2),
    kind = certaintyOf(ranking),
    nameOf = (p) => p.machine.name;
  const both = listed(pair.map(nameOf));
  if (pair[0].isBound) return `the time of ${nameOf(pair[0])} is an upper bound, so this is certain, and the ratio the least`;
  if (kind === "overlap") return `the intervals of ${both} overlap: the order is uncertain`;
  if (kind === "one process")
    return `the times of ${both} come from one process and differ by less than 10 %: the order is uncertain`;
  if (kind === "certain") return "the intervals do not overlap: certain at 95 %";
  const without = pair.filter((p) => !p.interval).map(nameOf);
  return `${listed(without)} ${without.length === 1 ? "has" : "have"} no interval: certainty unknown`;
}

function whyUnranked({ total, machine }, by) {
  if (total.time_s == null) return `${total.measured} of ${total.kernels} kernels`;
  if (total.disturbed) return `${total.disturbed} time${total.disturbed > 1 ? "s" : ""} disturbed`;
  return by === "cost" && !machine.price ? "no price" : "no energy";
}

function answerOf(ranking) {
  const { title, by, places, ranked } = ranking;
  const left = places
    .filter((p) => p.total && !p.isRanked)
    .map((p) => `${p.machine.name} (${whyUnranked(p, by)})`);
  const rest = left.length ? ` Not ranked: ${listed(left)}.` : "";
  if (!ranked.length) return `${title}: no machine can be ranked.${rest}`;
  const best = ranked[0].machine.name;
  if (ranked.length === 1) return `${title}: only ${best} can be ranked, so there is no order.${rest}`;
  const order = orderSentence(best, ranked[1].machine.name, ranked[1].ratio, by);
  const third = couldBeBest(ranking).filter((p) => p !== ranked[1]);
  const near = third.map((p) => `${p.machine.name} (${WHY_NEAR[comparedWithBest(ranked[0], p)]})`);
  const others = near.length ? ` Could also be the best: ${listed(near)}.` : "";
  const help = moreRoundsHelp(ranking) ? ` ${MORE_ROUNDS}` : "";
  return `${title}: ${order}; ${certaintyText(ranking)}.${others}${help}${rest}`;
}

/* What the total of the best machine consists of. */
function compositionOf({ ranked }) {
  if (!ranked.length) return null;
  const { machine, total } = ranked[0];
  const shares = Object.entries(total.by_op_s ?? {})
    .sort(([, s], [, t]) => t - s)
    .map(([op, s]) => [op, format.percent(s / total.time_s)])
    .filter(([, share]) => share !== "0 %");
  return shares.length ? `${machine.name}: ${shares.map((words) => words.join(" ")).join(", ")} of the time.` : null;
}

/* A ratio to the best in words. */
function ratioText(ratio, by) {
  if (ratio == null) return "–";
  if (by === "time") return format.fasterOrSlower(ratio);
  return ratio >= 2 ? `${format.significant(ratio)}× the ${by}` : `${format.percent(ratio - 1)} more`;
}

/* Where a machine lacks kernels: its ratio to the file of the page, over the kernels that both have. */
function commonText({ machine, total }, title) {
  const found = (machine.common ?? [])
    .filter(({ here, cell }) => cell && applicationTitle(here) === title && here.bits === total.bits)
    .sort((a, b) => b.cell[1] - a.cell[1])[0];
  if (!found) return null;
  const [ratio, compared, disturbed] = found.cell;
  const left = disturbed ? `, ${disturbed} disturbed left out` : "";
  return ratio == null
    ? `${disturbed} of ${compared + disturbed} common kernels disturbed`
    : `${format.fasterOrSlower(ratio)} than ${found.file} over ${compared} common kernel${compared === 1 ? "" : "s"} (${found.here.precision})${left}`;
}

const coverageCell = (a) =>
  a.time_s != null && !a.disturbed
    ? `${a.measured} of ${a.kernels}`
    : markText(`${a.measured} of ${a.kernels}${a.disturbed ? `, ${a.disturbed} disturbed` : ""}`);
const nameCell = (machine) => (machine.href ? element("a", { href: machine.href }, machine.name) : machine.name);

function rankingTable(ranking) {
  const { title, by, places } = ranking,
    members = places.filter((p) => p.total);
  const comparedCell = (p) => {
    if (p.ratio != null) {
      const range = p.ratios && ` ${format.significant(p.ratios[0])} to ${format.significant(p.ratios[1])}×`;
      return element("span", {}, ratioText(p.ratio, by), range ? small(range) : null);
    }
    if (p.rank && ranking.ranked.length > 1) return element("strong", {}, bestText(ranking));
    const common = p.total.time_s == null ? commonText(p, title) : null;
    return common ? small(common) : "–";
  };
  const columns = [
    column("machine", "Machine", (p) => nameCell(p.machine)),
    number("rank", "Rank", (p) => format.text(p.rank)),
    number("time_s", "Total time", (p) => format.time(p.total)),
    number("half", "±", (p) => format.plusMinus(format.halfWidth(p.total)) + (p.total.single_process && p.total.low_s != null ? "*" : "")),
    members.some((p) => costOf(p) != null) && number("cost", "Cost of a million passes", (p) => (p.total.time_s == null ? "–" : VALUES.cost.show(costOf(p)))),
    members.some((p) => p.total.joules != null) && number("joules", "Energy", (p) => format.joules(p.total.joules)),
    number("ratio", "vs best", comparedCell),
    column("precision", "Precision", (p) => `${p.total.precision}${threadsOf(p.total)}`),
    number("kernels", "Kernels", (p) => coverageCell(p.total)),
    column("kind", "Source", (p) => p.machine.kind),
  ].filter(Boolean);
  return cardTable(`Machines by ${VALUES[by].title}: ${title}`, columns, members);
}

/* One row per application, one column per machine. */
function matrixTable(machines, titles, competes, by) {
  const rows = titles.map((title) => rankingOf(machines, title, competes, by)).filter((r) => r.places.some((p) => p.total));
  const cell = (ranking, machine) => {
    const p = ranking.places.find((place) => place.machine === machine);
    if (!p.total) return "–";
    if (p.total.time_s == null) {
      const common = commonText(p, ranking.title);
      return element("span", {}, "– ", markText(`${p.total.measured} of ${p.total.kernels}`), common ? small(` ${common}`) : null);
    }
    const isBest = ranking.ranked.length > 1 && p === ranking.ranked[0];
    return element(
      "span",
      {},
      isBest ? element("strong", {}, VALUES[by].show(p.value, p.total)) : VALUES[by].show(p.value, p.total),
      small(` ${p.total.precision}`),
      p.total.disturbed ? markText(` ${p.total.disturbed} disturbed`) : null,
      isBest ? element("strong", {}, ` ${bestText(ranking)}`) : null,
    );
  };
  const columns = [
    column("title", "Application", (r) => r.title),
    ...machines.map((m, i) => number(`machine ${i}`, m.name, (r) => cell(r, m))),
  ];
  return cardTable(`Applications: ${VALUES[by].cells} on each machine`, columns, rows);
}

/* Precisions that compete: those that meet DeepBench's minimum, of any width or of one; or one that is named. */
function precisionChoices(totals) {
  const widths = distinct(totals.filter((a) => !a.below_minimum).map((a) => a.bits)).sort((a, b) => b - a);
  const below = distinct(totals.filter((a) => a.below_minimum).map((a) => a.precision));
  return [
    ["any that meets DeepBench's minimum", (a) => !a.below_minimum],
    ...widths.map((bits) => [`${bits} bits`, (a) => !a.below_minimum && a.bits === bits]),
    ...below.map((name) => [`${name}, below the minimum`, (a) => a.precision === name]),
  ];
}

/* `machines` have a name, a kind and totals; `chosen` are those that are ticked at first. `preset` is what the person who
   wrote the page chose: titles of an application, and prices by name of a machine. */
function addMachines(parent, all, chosen, showsMatrix, preset) {
  const prices = new Map(Object.entries(preset?.prices ?? {}));
  const machines = all.map((machine) => ({ ...machine, price: prices.get(machine.name) ?? null }));
  const totals = machines.flatMap((m) => m.applications).filter((a) => a.measured);
  if (!totals.length) return;
  const ticked = new Set(machines.filter((m) => chosen.includes(m.name)));
  const titles = distinct(totals.map(applicationTitle)).sort((a, b) => collator.compare(a, b));
  const precisions = precisionChoices(totals);
  const rankedOf = (title) => rankingOf([...ticked], title, precisions[0][1], "time").ranked.length;
  const preferred = preset?.titles.length ? titles.filter((t) => preset.titles.includes(t)) : showsMatrix ? [] : titles;
  let title = preferred.reduce((best, t) => (best === "" || rankedOf(t) > rankedOf(best) ? t : best), ""),
    competes = precisions[0][1],
    by = prices.size ? "cost" : "time",
    byIsChosen = false;
  const place = element("div", {}),
    answer = element("p", { class: "answer", role: "status" }),
    composition = element("p", { class: "note" }),
    hint = element("p", { class: "note" }),
    unusable = new Set(),
    refusal = element("p", { class: "mark", role: "status" });
  const show = () => {
    const shown = machines.filter((m) => ticked.has(m));
    const ranking = title && rankingOf(shown, title, competes, by);
    place.replaceChildren(title ? rankingTable(ranking) : matrixTable(shown, titles, competes, by));
    const isEmpty = !title && !place.querySelector("tbody tr");
    const text = !shown.length
      ? "Choose machines."
      : isEmpty
        ? "No ticked machine has a time in this precision."
        : title
          ? answerOf(ranking)
          : "Choose an application to see how certain an order is.";
    const without = title ? ranking.places.filter((p) => !p.total) : [];
    const absent = without.filter((p) => p.hasKernels).map((p) => p.machine.name),
      withoutAny = without.filter((p) => !p.hasKernels).map((p) => p.machine.name);
    if (answer.textContent !== text) answer.textContent = text;
    composition.textContent = (title && compositionOf(ranking)) || "";
    hint.textContent = [
      !title && !isEmpty && `Cells: ${VALUES[by].cells}, and the precision${by === "cost" ? "; in the currency of the prices" : ""}.`,
      "Total time: each kernel once, or as often as a model calls it, with its fastest library; where a kernel has no time there is no total.",
      "±: from the sum of the lower ends of the kernels' 95 % intervals to the sum of the upper ends (*: some come from one process).",
      place.textContent.includes("≤") &&
        "≤: contains times that other programs disturbed. It has a rank only if it is below all others even so.",
      place.textContent.includes("best?") &&
        `best?: the ${VALUES[by].title} is the lowest, but another machine could be the best, too.`,
      withoutAny.length && `No kernel of the application: ${withoutAny.join(", ")}.`,
      absent.length && `No kernel of the application in a precision that competes: ${absent.join(", ")}.`,
      shown.some((m) => m.kind === "imported") && "Imported times are unchecked, and mostly without an interval.",
      shown.some((m) => m.kind === "simulated") && "Simulated times are those of a program or a model: no hardware ran them.",
      prices.size ? "Prices that you enter are neither stored nor sent." : "Prices are neither stored nor sent.",
    ]
      .filter(Boolean)
      .join(" ");
  };
  const byChoice = choice(
    "Rank by",
    Object.keys(VALUES),
    (v) => {
      by = v;
      byIsChosen = true;
      show();
    },
    by,
  );
  /* Prices mean that the reader asks for cost, unless another quantity was chosen. */
  const onPrice = (machine, field) => {
    const value = Number(field.value),
      isUsable = Number.isFinite(value) && value > 0;
    machine.price = isUsable ? value : null;
    if (isUsable || (field.value === "" && !field.validity.badInput)) unusable.delete(machine.name);
    else unusable.add(machine.name);
    field.setAttribute("aria-invalid", unusable.has(machine.name));
    refusal.textContent = unusable.size ? `A price must be greater than 0. Not used: ${[...unusable].join(", ")}.` : "";
    if (!byIsChosen) {
      by = machines.some((m) => m.price) ? "cost" : "time";
      byChoice.querySelector("select").value = by;
    }
    show();
  };
  const boxes = machines.map((machine) => {
    const box = element("input", {
      type: "checkbox",
      checked: ticked.has(machine),
      onchange: () => {
        if (box.checked) ticked.add(machine);
        else ticked.delete(machine);
        show();
      },
    });
    return box;
  });
  const rows = machines.map((machine, i) => {
    const price = element("input", {
      type: "number",
      min: 0,
      step: "any",
      inputmode: "decimal",
      autocomplete: "off",
      placeholder: "price/h",
      value: machine.price,
      "aria-label": `Price per hour of ${machine.name}`,
      oninput: () => onPrice(machine, price),
    });
    const about = machine.year ? ` (${machine.year})` : "";
    return element("div", {}, element("label", { class: "box" }, boxes[i], `${machine.name}${about}`), price);
  });
  const tickAll = (checked) =>
    element(
      "button",
      {
        type: "button",
        onclick: () => {
          boxes.forEach((box) => {
            box.checked = checked;
          });
          ticked.clear();
          if (checked) machines.forEach((m) => ticked.add(m));
          show();
        },
      },
      checked ? "Tick all" : "Tick none",
    );
  parent.append(
    element(
      "div",
      { class: "choices" },
      choice(
        "Application",
        [["", "all applications"], ...titles],
        (v) => {
          title = v;
          show();
        },
        title,
      ),
      choice(
        "Precision",
        precisions.map(([name], i) => [String(i), name]),
        (v) => {
          competes = precisions[v][1];
          show();
        },
        "0",
      ),
      byChoice,
      machines.length > 4 ? tickAll(true) : null,
      machines.length > 4 ? tickAll(false) : null,
    ),
    element(
      "fieldset",
      { class: "machine-list" },
      element("legend", {}, "Machines, and the price of an hour"),
      element("div", { tabindex: 0, role: "group", "aria-label": "Machines and prices" }, ...rows),
      refusal,
    ),
    answer,
    place,
    composition,
    hint,
  );
  show();
}
