"use strict";
/* The parts of the first screen that people change: machines by application, and kernels that open their details. */

/* The files of the page, and the published machines that have an application of theirs. */
function machinesOfPage() {
  const files = content.files.map(({ name, kind, applications }) => ({ name, kind, applications }));
  const published = new Map();
  for (const file of content.files) {
    for (const { name, year, applications, common } of file.first.machines) {
      if (files.some((f) => f.name === name)) continue;
      const known = published.get(name) ?? { name, year, kind: "imported", applications: [], common: [] };
      const titles = new Set(known.applications.map(applicationTitle));
      known.applications.push(...applications.filter((a) => !titles.has(applicationTitle(a))));
      known.common.push(...common.map((cell, i) => ({ file: file.name, here: file.applications[i], cell })));
      published.set(name, known);
    }
  }
  return [...files, ...published.values()];
}

/* A page of one file shows next to it the published machine that has the most kernels in common, if that has a total of
   an application of which the file has one. */
function chosenAtFirst(machines) {
  const named = content.preset?.machines ?? [],
    chosen = [...content.files.map((file) => file.name), ...named];
  if (severalFiles || named.length) return chosen;
  const totalsOf = (m) => m.applications.filter((a) => a.time_s != null).map(applicationTitle);
  const here = new Set(content.files.flatMap(totalsOf));
  const count = (m) => (m.common ?? []).reduce((sum, { cell }) => sum + (cell ? cell[1] : 0), 0);
  const most = machines.reduce((best, m) => (count(m) > (best ? count(best) : 0) ? m : best), null);
  return most && totalsOf(most).some((title) => here.has(title)) ? [...chosen, most.name] : chosen;
}

/* The kernels that use the least of the machine: five or ten of them, in the order that the reader chooses. */
function addOrders(list) {
  const items = [...list.children];
  const orders = {
    share: (item) => Number(item.dataset.share),
    excess: (item) => -Number(item.dataset.excess),
  };
  let order = "share",
    count = 5;
  const show = () => {
    items.sort((a, b) => orders[order](a) - orders[order](b));
    items.forEach((item, i) => {
      item.hidden = i >= count;
    });
    list.replaceChildren(...items);
  };
  const choose = choice(
    "Order",
    [
      ["share", "lowest share of the limit"],
      ["excess", "most time above the limit"],
    ],
    (value) => {
      order = value;
      show();
    },
    order,
  );
  list.before(element("div", { class: "choices" }, choose));
  if (items.length <= count) return;
  const more = element("button", { type: "button" }, `Show ${Math.min(10, items.length)}`);
  more.addEventListener("click", () => {
    const first = count;
    count = 10;
    show();
    items[first].querySelector("button").focus();
    more.remove();
  });
  list.after(more);
}

function addFirstScreens() {
  document.querySelectorAll(".furthest").forEach(addOrders);
  document.querySelectorAll("[data-machines]").forEach((section) => {
    const machines = machinesOfPage();
    addMachines(section, machines, chosenAtFirst(machines), true, content.preset);
  });
  document.querySelectorAll("[data-row]").forEach((button) => {
    const fileIndex = Number(button.closest("[data-file]").dataset.file);
    button.addEventListener("click", () => showDetails(rowsOf(fileIndex)[Number(button.dataset.row)]));
  });
}
