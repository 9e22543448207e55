"use strict";
/* What changed between two files: the decided cases, slower ones first, with what may explain them. */
const MOST_CHANGES = 20;

/* The factors of an interval; the direction only where it is not that of the ratio. */
function intervalText({ ratio, low, high }) {
  if (low == null) return "";
  const words = (v) =>
    v > 1 === ratio > 1 ? format.howMuch(Math.max(v, 1 / v)) : format.fasterOrSlower(v);
  return format.byFactor(low, high).map(words).join(" to ");
}

/* The rows of a compared case in both files; a published machine has none. */
function sidesOf(pair, c) {
  const find = (file, text) => rows.find((r) => r.file === file && r.case === text);
  return [find(pair.first, c.case), find(pair.second, c.second_case)];
}

/* The details of a compared case: those of the second file below what changed. */
function showChange(pair, c) {
  const [first, second] = sidesOf(pair, c);
  if (first && second) showDetails(second, changeOf(pair, c, [first, second]));
  else if (first ?? second) showDetails(first ?? second);
}

/* Both sides of a case, its ratio and what may explain it. */
function changeOf(pair, c, sides) {
  const columns = [
    column("file", "File"),
    column("time_s", "Time per call", (r) => element("span", {}, `${format.seconds(r.time_s)} `, small(timeRange(r)))),
    column("implementation", "Implementation", (r) => format.text(r.implementation)),
    column("library", "Library", (r) => `${r.library} ${r.version ?? ""}`),
  ];
  const range = intervalText(c);
  const ratio =
    c.ratio == null
      ? "no ratio: a time is disturbed"
      : format.speedSentence(pair.second, c.ratio, pair.first) + (range ? ` (95 % confidence interval ${range})` : "");
  const shared = pair.differs.length ? `none of its own; all cases share: ${pair.differs.join("; ")}` : "none recorded";
  return element(
    "section",
    { "aria-label": "What changed", class: "change" },
    element("p", {}, `${ratio}. Verdict: ${format.verdict(c.verdict)}. Reason: ${c.reason ?? shared}.`),
    cardTable("Both sides of this case", columns, sides),
    element("p", { class: "note" }, pair.note),
    element("h3", {}, `In ${pair.second}`),
  );
}

const timeRange = (r) => (r.low_s == null ? "" : `${format.seconds(r.low_s)} to ${format.seconds(r.high_s)}`);

/* The name of a case; a button that opens it. */
function changedCase(pair, c) {
  const title = sidesOf(pair, c)[1]
    ? element("button", { type: "button", title: "Details of this case", onclick: () => showChange(pair, c) }, c.title)
    : c.title;
  return element("span", {}, title, small(`${c.op}, ${c.precision}, ${c.library}`));
}

function addChanges() {
  document.querySelectorAll("[data-changes]").forEach((parent) => {
    const pair = content.pairs[Number(parent.dataset.changes)];
    const decided = pair.cases.filter((c) => c.verdict === "slower" || c.verdict === "faster");
    if (!decided.length) return;
    const columns = [
      column("title", "Case", (c) => changedCase(pair, c)),
      number("ratio", `${pair.second} is`, (c) =>
        element("span", {}, format.fasterOrSlower(c.ratio), small(intervalText(c))),
      ),
      number("first", "Time", (c) => `${format.seconds(c.first)} → ${format.seconds(c.second)}`),
      decided.some((c) => c.reason) && column("reason", "Reason", (c) => c.reason ?? ""),
    ].filter(Boolean);
    const caption = `Cases that are slower in ${pair.second}, then those that are faster, the largest change first`;
    const place = element("div", {});
    const show = (count) => place.replaceChildren(cardTable(caption, columns, decided.slice(0, count)));
    parent.append(place);
    show(MOST_CHANGES);
    const meaning = "what was recorded on both sides and differs; it may explain the ratio, but does not prove it.";
    const notes = [pair.note, decided.some((c) => c.reason) && `Reason: ${meaning}`].filter(Boolean);
    parent.append(element("p", { class: "note" }, notes.join(" ")));
    if (decided.length <= MOST_CHANGES) return;
    const texts = { false: `Show all ${decided.length}`, true: `Show the first ${MOST_CHANGES}` };
    const button = element("button", { type: "button", "aria-expanded": "false" }, texts.false);
    button.addEventListener("click", () => {
      const all = button.getAttribute("aria-expanded") === "false";
      button.setAttribute("aria-expanded", all);
      button.textContent = texts[all];
      show(all ? decided.length : MOST_CHANGES);
    });
    parent.append(button);
  });
}
