"use strict";
/* What changed between two files: the decided cases, slower ones first, with what may explain them. */
const MOST_CHANGES = 20;

/* The factors of an interval; the direction only where it is not that of the ratio. */
function intervalText({ ratio, low, high }) {
  if (low == null) return "";
  const words = (v) =>
    v > 1 === ratio > 1 ? `${format.significant(Math.max(v, 1 / v))}×` : format.fasterOrSlower(v);
  /* Of a faster case the higher ratio is the smaller factor, which comes first. */
  return (high < 1 ? [high, low] : [low, high]).map(words).join(" to ");
}

/* The name of a case; a button that opens it in the second file. */
function changedCase(pair, c) {
  const row = rows.find((r) => r.file === pair.second && r.case === c.second_case);
  const title = row
    ? element("button", { type: "button", title: "Details of this case", onclick: () => showDetails(row) }, c.title)
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
      column("reason", "Reason"),
    ];
    const caption = `Cases that are slower in ${pair.second}, then those that are faster, the largest change first`;
    const place = element("div", {});
    const show = (count) => place.replaceChildren(cardTable(caption, columns, decided.slice(0, count)));
    parent.append(place);
    show(MOST_CHANGES);
    const meaning = "what was recorded on both sides and differs; it may explain the ratio, but does not prove it.";
    parent.append(element("p", { class: "note" }, `Reason: ${meaning}`));
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
