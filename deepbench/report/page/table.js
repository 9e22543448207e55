"use strict";
/* A table that sorts, filters, searches and exports any number of rows. Only visible rows are in the document. */
const ROW_HEIGHT = 34,
  EXTRA_ROWS = 20,
  MOST_PRINTED = 3000,
  MOST_OPTIONS = 500;
const collator = new Intl.Collator("en", { numeric: true });

/* A column: `name` is the key of its values, `show` formats a row, `value` is what rows are sorted by. */
const column = (name, title, show, { align = "left", value } = {}) => ({
  name,
  title,
  show: show ?? ((r) => format.text(r[name])),
  align,
  value: value ?? ((r) => r[name]),
});
const number = (name, title, show, value) => column(name, title, show, { align: "right", value });

/* The key of a problem's field in a row: no other key has an equals sign. */
const fieldKey = (name) => `${name}=`;

/* Words such as m=64 or k>=1024 compare a field of the problem. */
const COMPARISON = /^([a-z_][a-z_0-9]*)(<=|>=|<|>|=)([a-z_0-9.]+)$/i;
const COMPARE = {
  "=": (a, b) => a === b,
  "<": (a, b) => a < b,
  ">": (a, b) => a > b,
  "<=": (a, b) => a <= b,
  ">=": (a, b) => a >= b,
};

class Table {
  /* `search` lists the texts of a row to search in. `filters` are pairs of key and label. `fieldsOf` returns the
     fields of the problems that pass the filters: each gets a filter, and a column before the status. */
  constructor(rows, columns, { search, filters, exported, fileName, open, decorate, fieldsOf = () => [] }) {
    Object.assign(this, { rows, fixed: columns, search, exported, open, decorate, fileName, fieldsOf });
    this.scroller = document.getElementById("scroller");
    this.table = document.getElementById("table");
    this.body = this.table.tBodies[0];
    this.selected = {};
    this.query = [];
    this.sort = null;
    this.descending = false;
    this.first = -1;
    this.makeFilters(filters);
    let waiting = false;
    this.scroller.addEventListener("scroll", () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        this.paint();
      });
    });
    window.addEventListener("beforeprint", () => this.paint(true));
    window.addEventListener("afterprint", () => {
      this.first = -1;
      this.paint();
    });
    this.updateFields();
    this.refresh();
  }

  makeFilters(filters) {
    const form = document.getElementById("filters");
    form.addEventListener("submit", (event) => event.preventDefault());
    let timer;
    const input = element("input", {
      type: "search",
      size: 22,
      placeholder: this.rows.some((r) => fieldKey("m") in r) ? "words, m=64, k>=1024" : "words",
      oninput: () => {
        clearTimeout(timer);
        timer = setTimeout(() => {
          this.query = input.value.split(/\s+/).filter(Boolean);
          this.restart();
        }, 120);
      },
    });
    form.append(element("label", {}, "Search", input));
    for (const [name, label] of filters) {
      const values = distinct(this.rows.map((r) => r[name])).map(String);
      if (values.length > 1)
        form.append(
          this.filter(name, label, values, () => {
            this.updateFields();
            this.restart();
          }),
        );
    }
    this.fieldFilters = element(
      "fieldset",
      { id: "fields", hidden: true },
      element("legend", { class: "unseen" }, "Fields of the problem"),
    );
    form.append(
      this.fieldFilters,
      element("button", { type: "button", id: "export", onclick: () => this.download() }, "Export CSV"),
    );
  }

  filter(name, label, values, onchange) {
    return choice(
      label,
      [["", "all"], ...values.map((v) => [v, v.replaceAll("_", " ")])],
      (v) => {
        this.selected[name] = v;
        onchange();
      },
      this.selected[name],
    );
  }

  /* Columns and filters for the fields of the problems that are left. */
  updateFields() {
    const rows = this.rows.filter((row) => this.isSelected(row, (name) => !name.endsWith("=")));
    const fields = this.fieldsOf(rows);
    for (const name of Object.keys(this.selected))
      if (name.endsWith("=") && !fields.includes(name.slice(0, -1))) delete this.selected[name];
    const filters = fields.map((name) => [
      name,
      distinct(rows.map((r) => r[fieldKey(name)]))
        .sort((a, b) => collator.compare(a, b))
        .map(String),
    ]);
    const few = filters.filter(([, values]) => values.length > 1 && values.length <= MOST_OPTIONS);
    this.fieldFilters.replaceChildren(
      this.fieldFilters.firstChild,
      ...few.map(([name, values]) => this.filter(fieldKey(name), name, values, () => this.restart())),
    );
    this.fieldFilters.hidden = !few.length;
    const at = this.fixed.findIndex((c) => c.name === "status");
    const ofFields = fields.map((name) =>
      (rows.some((r) => typeof r[fieldKey(name)] === "string") ? column : number)(fieldKey(name), name),
    );
    this.columns = fields.length ? [...this.fixed.slice(0, at), ...ofFields, ...this.fixed.slice(at)] : this.fixed;
    if (!this.columns.some((c) => c.name === this.sort)) this.sort = null;
    this.makeHead();
  }

  makeHead() {
    const tr = element("tr", { "aria-rowindex": 1 });
    this.head = this.columns.map(({ name, title, align }) => {
      const th = element(
        "th",
        { scope: "col", class: align, "aria-sort": "none" },
        element(
          "button",
          {
            type: "button",
            onclick: () => {
              this.descending = this.sort === name ? !this.descending : false;
              this.sort = name;
              this.refresh();
            },
          },
          title,
        ),
      );
      tr.append(th);
      return th;
    });
    this.table.tHead.replaceChildren(tr);
  }

  isSelected(row, counts = () => true) {
    return Object.entries(this.selected).every(
      ([name, value]) => !value || !counts(name) || String(row[name]) === value,
    );
  }

  matches(row) {
    if (!this.isSelected(row)) return false;
    return this.query.every((word) => {
      const [, name, operator, text] = COMPARISON.exec(word) ?? [];
      const value = name && row[fieldKey(name)];
      if (value != null)
        return typeof value === "number"
          ? COMPARE[operator](value, Number(text))
          : operator === "=" && String(value) === text;
      row.searched ??= this.search(row).join(" ").toLowerCase();
      return row.searched.includes(word.toLowerCase());
    });
  }

  /* Missing values come last in both directions. */
  compare(a, b, value) {
    const x = value(a),
      y = value(b);
    if (x == null || y == null) return (x == null) - (y == null);
    const order = typeof x === "number" && typeof y === "number" ? x - y : collator.compare(String(x), String(y));
    return this.descending ? -order : order;
  }

  restart() {
    this.scroller.scrollTop = 0;
    this.refresh();
  }

  refresh() {
    this.shown = this.rows.filter((row) => this.matches(row));
    const sorted = this.columns.find((c) => c.name === this.sort);
    if (sorted) this.shown.sort((a, b) => this.compare(a, b, sorted.value) || a.id - b.id);
    document.getElementById("count").textContent = `${this.shown.length} of ${this.rows.length} rows`;
    this.table.setAttribute("aria-rowcount", this.shown.length + 1);
    this.head.forEach((th, i) =>
      th.setAttribute(
        "aria-sort",
        this.columns[i] === sorted ? (this.descending ? "descending" : "ascending") : "none",
      ),
    );
    this.first = -1;
    this.paint();
  }

  paint(everything = false) {
    const visible = Math.ceil((this.scroller.clientHeight || 600) / ROW_HEIGHT),
      count = this.shown.length;
    const top = Math.max(
      0,
      Math.min(Math.floor(this.scroller.scrollTop / ROW_HEIGHT) - EXTRA_ROWS, count - visible - 2 * EXTRA_ROWS),
    );
    const start = everything ? 0 : top - (top % 10);
    if (start === this.first && !everything) return;
    this.first = start;
    /* A button keeps the keyboard focus when its row is painted again. */
    const focused = document.activeElement?.closest?.("#table tbody tr")?.dataset.id;
    const end = everything ? Math.min(count, MOST_PRINTED) : Math.min(count, start + visible + 2 * EXTRA_ROWS + 10);
    const gap = (height) =>
      element(
        "tr",
        { "aria-hidden": "true" },
        element("td", { colspan: this.columns.length, style: `height:${height}px;border:0;padding:0` }),
      );
    const painted = this.shown.slice(start, end).map((row, i) => {
      const tr = element("tr", { "aria-rowindex": start + i + 2, "data-id": row.id });
      for (const { name, show, align } of this.columns) {
        const td = element("td", { class: align });
        td.append(this.open && name === "title" ? this.open(row, show(row)) : show(row));
        this.decorate?.(td, name, row);
        tr.append(td);
      }
      return tr;
    });
    const rest = everything
      ? [
          element(
            "tr",
            {},
            element(
              "td",
              { colspan: this.columns.length },
              `${count - end} more rows are not printed; Export CSV has all.`,
            ),
          ),
        ]
      : [gap((count - end) * ROW_HEIGHT)];
    this.body.replaceChildren(...(start ? [gap(start * ROW_HEIGHT)] : []), ...painted, ...(end < count ? rest : []));
    if (focused != null)
      this.body.querySelector(`tr[data-id="${focused}"] :is(button, a)`)?.focus({ preventScroll: true });
  }

  /* The visible rows for spreadsheets: plain values, and no text that a spreadsheet would run as a formula. */
  csv() {
    const cell = (v) => {
      const text = v == null ? "" : typeof v === "string" && /^[=+\-@\t\r]/.test(v) ? `'${v}` : String(v);
      return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const header = this.exported.map((name) => name.replace(/=$/, ""));
    return (
      [header, ...this.shown.map((r) => this.exported.map((n) => r[n]))]
        .map((line) => line.map(cell).join(","))
        .join("\n") + "\n"
    );
  }

  download() {
    const url = URL.createObjectURL(new Blob([this.csv()], { type: "text/csv" }));
    element("a", { href: url, download: this.fileName }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
}

/* A small table without filters, in the same columns. */
function plainTable(caption, columns, rows) {
  const head = columns.map(({ title, align }) => element("th", { scope: "col", class: align }, title));
  const body = rows.map((row) =>
    element("tr", {}, ...columns.map(({ show, align }) => element("td", { class: align }, show(row)))),
  );
  const table = element(
    "table",
    {},
    element("caption", { class: "unseen" }, caption),
    element("thead", {}, element("tr", {}, ...head)),
    element("tbody", {}, ...body),
  );
  return element("div", { class: "slide", tabindex: 0, role: "region", "aria-label": caption }, table);
}

/* The same with the first column as titles of rows. On a narrow screen each row is a card, and its cells have names. */
function cardTable(caption, columns, rows) {
  const slide = plainTable(caption, columns, rows);
  slide.firstChild.className = "cards";
  for (const tr of slide.querySelectorAll("tbody tr")) {
    [...tr.cells].forEach((td, i) => td.setAttribute("data-label", columns[i].title));
    const [first] = tr.cells;
    const title = element("th", { scope: "row" }, ...first.childNodes);
    first.replaceWith(title);
  }
  return slide;
}
