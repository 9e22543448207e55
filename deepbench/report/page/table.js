"use strict";
/* A table of any number of rows that sorts, filters, searches and exports; only the rows in view are in the document.

A column is [name, title, text of a row, kind, value to sort by]; what is missing comes last, either way. */
const ROW = 34, EXTRA = 20, MOST_PRINTED = 3000;
const collator = new Intl.Collator("en", { numeric: true });

class Table {
  constructor(rows, columns, { search, filters, exported, open, decorate, fileName }) {
    Object.assign(this, { rows, columns, searched: search, exported, open, decorate, fileName });
    this.scroller = document.getElementById("scroller");
    this.table = document.getElementById("table");
    this.body = this.table.tBodies[0];
    this.chosen = { search: "" };
    this.sort = null;
    this.down = false;
    this.from = -1;
    this.shown = rows;
    this.makeFilters(filters);
    this.makeHead();
    this.refresh();
  }

  makeFilters(filters) {
    const form = document.getElementById("filters");
    form.addEventListener("submit", (event) => event.preventDefault());
    let timer;
    const search = element("input", { type: "search", placeholder: "words", oninput: () => {
      clearTimeout(timer);
      timer = setTimeout(() => { this.chosen.search = search.value.trim().toLowerCase(); this.begin(); }, 120);
    } });
    form.append(element("label", {}, "Search", search));
    for (const [name, label] of filters) {
      const values = distinct(this.rows.map((r) => r[name])).map(String);
      if (values.length > 1) form.append(choice(label, [["", "all"], ...values.map((v) => [v, v.replaceAll("_", " ")])], (v) => { this.chosen[name] = v; this.begin(); }));
    }
    form.append(element("button", { type: "button", id: "export", onclick: () => this.download() }, "Export CSV"));
  }

  makeHead() {
    const tr = element("tr", { "aria-rowindex": 1 });
    this.head = this.columns.map(([, title, , kind], i) => {
      const th = element("th", { scope: "col", class: kind || null, "aria-sort": "none" }, element("button", { type: "button", onclick: () => {
        this.down = this.sort === i ? !this.down : false;
        this.sort = i;
        this.refresh();
      } }, title));
      tr.append(th);
      return th;
    });
    this.table.tHead.append(tr);
    let waiting = false;
    this.scroller.addEventListener("scroll", () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; this.paint(); });
    });
    window.addEventListener("beforeprint", () => this.paint(true));
    window.addEventListener("afterprint", () => { this.from = -1; this.paint(); });
  }

  matches(row) {
    for (const [name, value] of Object.entries(this.chosen)) if (name !== "search" && value && String(row[name]) !== value) return false;
    if (!this.chosen.search) return true;
    row.words ??= this.searched(row).join(" ").toLowerCase();
    return this.chosen.search.split(/\s+/).every((w) => row.words.includes(w));
  }

  order(a, b, value) {
    const x = value(a), y = value(b);
    if (x == null || y == null) return (x == null) - (y == null);
    const found = typeof x === "number" ? x - y : collator.compare(String(x), String(y));
    return this.down ? -found : found;
  }

  begin() {
    this.scroller.scrollTop = 0;
    this.refresh();
  }

  refresh() {
    this.shown = this.rows.filter((row) => this.matches(row));
    if (this.sort !== null) {
      const [name, , text, , value] = this.columns[this.sort];
      const get = value || ((r) => (typeof r[name] === "number" ? r[name] : r[name] == null ? null : text(r)));
      this.shown.sort((a, b) => this.order(a, b, get) || a.id - b.id);
    }
    document.getElementById("count").textContent = `${this.shown.length} of ${this.rows.length} rows`;
    this.table.setAttribute("aria-rowcount", this.shown.length + 1);
    this.head.forEach((th, i) => th.setAttribute("aria-sort", this.sort === i ? (this.down ? "descending" : "ascending") : "none"));
    this.from = -1;
    this.paint();
  }

  paint(everything = false) {
    const high = Math.ceil((this.scroller.clientHeight || 600) / ROW), count = this.shown.length;
    const from = Math.max(0, Math.min(Math.floor(this.scroller.scrollTop / ROW) - EXTRA, count - high - 2 * EXTRA));
    const start = everything ? 0 : from - (from % 10);
    if (start === this.from && !everything) return;
    this.from = start;
    /* A button that is painted anew keeps the keyboard. */
    const focused = document.activeElement?.closest?.("#table tbody tr")?.dataset.id;
    const end = everything ? Math.min(count, MOST_PRINTED) : Math.min(count, start + high + 2 * EXTRA + 10);
    const gap = (height) => element("tr", { "aria-hidden": "true" }, element("td", { colspan: this.columns.length, style: `height:${height}px;border:0;padding:0` }));
    const made = this.shown.slice(start, end).map((row, i) => {
      const tr = element("tr", { "aria-rowindex": start + i + 2, "data-id": row.id });
      for (const column of this.columns) {
        const [name, , text, kind] = column, td = element("td", { class: kind || null });
        if (this.open && name === "title") td.append(this.open(row, text(row)));
        else td.textContent = text(row);
        this.decorate?.(td, name, row);
        tr.append(td);
      }
      return tr;
    });
    const rest = everything ? [element("tr", {}, element("td", { colspan: this.columns.length }, `${count - end} more rows are not printed; Export CSV has all.`))] : [gap((count - end) * ROW)];
    this.body.replaceChildren(...(start ? [gap(start * ROW)] : []), ...made, ...(end < count ? rest : []));
    if (focused != null) this.body.querySelector(`tr[data-id="${focused}"] :is(button, a)`)?.focus({ preventScroll: true });
  }

  /* What is in the table now, for spreadsheets: plain values, and no text that one takes for a formula. */
  csv() {
    const cell = (v) => {
      const text = v == null ? "" : typeof v === "string" && /^[=+\-@\t\r]/.test(v) ? `'${v}` : String(v);
      return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    return [this.exported, ...this.shown.map((r) => this.exported.map((n) => r[n]))].map((line) => line.map(cell).join(",")).join("\n") + "\n";
  }

  download() {
    const url = URL.createObjectURL(new Blob([this.csv()], { type: "text/csv" }));
    element("a", { href: url, download: this.fileName }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
}
