"use strict";
/* The parts of the first screen that people change: totals of applications, with a ratio and a cost. */

const suiteName = (a) => `${a.suite.replace("deepbench/", "")}, ${a.precision}${threadsOf(a)}`;
const small = (text) => element("span", { class: "note" }, text);

/* A sum with a mark where it contains times that other programs disturbed. */
const marked = (text, disturbed) =>
  element("span", {}, text, disturbed ? element("span", { class: "mark" }, ` ${disturbed} disturbed`) : null);

/* A total counts only where every kernel has a time. Elsewhere the number of kernels says why there is none. */
const totalCell = (a) => (isWhole(a) ? marked(format.seconds(a.time), a.disturbed) : "–");
const coverageCell = (a) => element("span", { class: isWhole(a) ? null : "mark" }, `${a.measured} of ${a.kernels}`);

function ratioCell(a, machine) {
  const [ratio, compared, disturbed] = machine.cells[a.index] ?? [null, 0, 0];
  const left = disturbed ? `, ${disturbed} disturbed left out` : "";
  const over =
    ratio != null
      ? ` over ${compared} of ${a.kernels} kernels${left}`
      : disturbed
        ? ` ${disturbed} of ${compared + disturbed} common kernels disturbed`
        : " no kernel in common";
  return element("span", {}, format.fasterOrSlower(ratio), small(over));
}

/* A million passes over all kernels, in the currency of the price. */
const costCell = (a, pricePerHour) =>
  isWhole(a) ? marked(format.significant(((1e6 * a.time) / 3600) * pricePerHour), a.disturbed) : "–";

function addApplications(parent, file) {
  const totals = file.applications.map((a, index) => ({ ...a, index }));
  const groups = [...groupBy(totals, suiteName)];
  const machines = file.first.machines;
  const count = (members, of) => members.reduce((sum, a) => sum + of(a), 0);
  const comparedWith = (machine, members) => count(members, (a) => machine.cells[a.index]?.[1] ?? 0);
  /* At first: the group with the most kernels, and the machine that has the most of them. */
  let shown = groups.reduce((best, group) =>
    count(group[1], (a) => a.measured) > count(best[1], (a) => a.measured) ? group : best,
  );
  let machine = machines.reduce(
    (best, m) => (best && comparedWith(best, shown[1]) >= comparedWith(m, shown[1]) ? best : m),
    null,
  );
  let pricePerHour = null;
  const place = element("div", {});
  const show = () => {
    const columns = [
      column("application", "Application"),
      number("time", "Total time", totalCell),
      number("kernels", "Kernels", coverageCell),
      machine && number("ratio", `${machine.name} is`, (a) => ratioCell(a, machine)),
      pricePerHour && number("cost", "Cost of a million passes", (a) => costCell(a, pricePerHour)),
    ].filter(Boolean);
    place.replaceChildren(cardTable(`Applications (${shown[0]})`, columns, shown[1]));
  };
  const price = element("input", {
    type: "number",
    min: 0,
    step: "any",
    inputmode: "decimal",
    autocomplete: "off",
    oninput: () => {
      const value = Number(price.value);
      pricePerHour = Number.isFinite(value) && value > 0 ? value : null;
      show();
    },
  });
  const byName = (list) => list.map(([name], i) => [String(i), name]);
  const bar = element(
    "div",
    { class: "choices" },
    choice(
      "Suite and precision",
      byName(groups),
      (v) => {
        shown = groups[v];
        show();
      },
      String(groups.indexOf(shown)),
    ),
    machines.length
      ? choice(
          "Compare with",
          [["", "no machine"], ...byName(machines.map((m) => [`${m.name} (${m.year})`]))],
          (v) => {
            machine = v === "" ? null : machines[v];
            show();
          },
          machine ? String(machines.indexOf(machine)) : "",
        )
      : null,
    element("label", {}, "Price per hour", price),
  );
  const measured = file.kind === "published" ? "" : ", with its fastest library";
  parent.append(
    bar,
    place,
    element(
      "p",
      { class: "note" },
      `Total time: one call of each kernel${measured}, where every kernel has a time. ` +
        (machines.length
          ? "Ratio: sums over the kernels that both machines have; published times are unchecked means."
          : "No published machine has these kernels."),
    ),
  );
  show();
}

function addFirstScreens() {
  document.querySelectorAll("[data-more]").forEach((button) => {
    button.addEventListener("click", () => {
      const hidden = button.previousElementSibling.querySelectorAll("li[hidden]");
      hidden.forEach((item) => {
        item.hidden = false;
      });
      hidden[0].querySelector("button").focus();
      button.remove();
    });
  });
  document.querySelectorAll("[data-applications]").forEach((section) => {
    addApplications(section, content.files[Number(section.dataset.applications)]);
  });
  document.querySelectorAll("[data-row]").forEach((button) => {
    const fileIndex = Number(button.closest("[data-file]").dataset.file);
    button.addEventListener("click", () => showDetails(rowsOf(fileIndex)[Number(button.dataset.row)]));
  });
}
