"use strict";
/* A table that sorts, filters, searches and exports any number of rows. Only visible rows are in the document, and the
   same elements show other rows after a change. On a narrow screen each row is a card. */
const EXTRA_ROWS = 20,
  /* Rows on paper: of a table that people have filtered, and of one that they have not, which fit on eight sheets. */
  MOST_PRINTED = 3000,
  MOST_CHOSEN = 600,
  MOST_OPTIONS = 500,
  /* Fields of problems that have a column without being asked for: a convolution has up to 19. */
  MOST_FIELDS = 3;
const collator = new Intl.Collator("en", { numeric: true });
/* The style sheet makes cards of rows at the same width. */
const phone = window.matchMedia("screen and (max-width: 40rem)");

/* A column: `name` is the key of its values, `show` formats a row, and `value` is what rows are sorted by. `full` is
   the whole text where `show` has a short one. A `key` identifies rows and stays visible. `shown` is false for columns
   that people find in the menu; `printed` columns are on paper; a `wide` one has a line of its own on a card. */
const column = (name, title, show, { align = "left", value, shown = true, ...others } = {}) => ({
  name,
  title,
  show: show ?? ((r) => format.text(r[name])),
  align,
  value: value ?? ((r) => r[name]),
  shown,
  ...others,
});
const number = (name, title, show, value, others) => column(name, title, show, { align: "right", value, ...others });

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

/* The columns that people chose on this page last time. Some browsers and settings forbid to store anything. */
const CHOSEN = `columns of ${location.pathname}`;
const storedChoices = {
  read() {
    try {
      const stored = JSON.parse(sessionStorage.getItem(CHOSEN));
      return new Map(Object.entries(stored ?? {}).filter(([, shown]) => typeof shown === "boolean"));
    } catch {
      return new Map();
    }
  },
  write(chosen) {
    try {
      sessionStorage.setItem(CHOSEN, JSON.stringify(Object.fromEntries(chosen)));
    } catch {
      /* The choice then lasts until the page is closed. */
    }
  },
};

class Table {
  /* `search` lists the texts of a row to search in. `filters` are lists of key, label and, where a row may have several
     values, a function that returns them. `sizes` are lists of key, label and value of what a range can be given for.
     `fieldsOf` returns the fields of the problems that pass the filters: each has a filter, a range and a column before
     the status. `isPrinted` are the rows on paper, unless people filter the table. `selected` are filters that are set
     at first, by key. */
  constructor(rows, columns, options) {
    Object.assign(this, { rows, fixed: columns, fieldsOf: () => [], sizes: [], ...options });
    this.scroller = document.getElementById("scroller");
    this.table = document.getElementById("table");
    this.body = this.table.tBodies[0];
    this.chosen = storedChoices.read();
    this.selected = { ...options.selected };
    this.valuesOf = new Map(this.filters.map(([name, , values]) => [name, values]));
    this.range = { size: null, from: null, to: null };
    this.query = [];
    this.sort = null;
    this.descending = false;
    this.first = -1;
    this.rowHeight = 34;
    this.visible = 20;
    /* Called after the layout of a frame, so that measuring needs no other one. What it observes must keep its size
       until the next frame. */
    this.observer = new ResizeObserver(() => {
      if (this.measure()) requestAnimationFrame(() => this.repaint());
    });
    this.makeForm();
    this.makeTools();
    let waiting = false;
    this.scroller.addEventListener("scroll", () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        this.paint();
      });
    });
    for (const [name, onPaper] of [
      ["beforeprint", true],
      ["afterprint", false],
    ])
      window.addEventListener(name, () => {
        this.onPaper = onPaper;
        this.updateColumns();
        this.refresh();
      });
    phone.addEventListener("change", () => {
      this.fold.open = !phone.matches;
      this.repaint();
    });
    this.updateFields();
    this.refresh();
  }

  makeForm() {
    const form = document.getElementById("filters");
    form.addEventListener("submit", (event) => event.preventDefault());
    let timer;
    const hasFields = this.rows.some((r) => Object.keys(r).some((name) => name.endsWith("=")));
    const input = element("input", {
      type: "search",
      size: 22,
      "aria-describedby": hasFields ? "search-help" : null,
      oninput: () => {
        clearTimeout(timer);
        timer = setTimeout(() => {
          this.query = input.value.split(/\s+/).filter(Boolean);
          this.restart();
        }, 120);
      },
    });
    const label = element("label", {}, "Search", input);
    const help = hasFields && element("span", { class: "note", id: "search-help" }, "words, or sizes: m=64 k>=1024");
    this.foldTitle = element("summary", {}, "Filters");
    this.choices = element("span", { class: "place" });
    const clear = element("button", { type: "reset" }, "Clear filters");
    const folded = element("div", { class: "choices" }, this.choices, clear);
    this.fold = element("details", { class: "filters", open: !phone.matches }, this.foldTitle, folded);
    this.fieldFilters = element(
      "fieldset",
      { id: "fields", hidden: true },
      element("legend", { class: "unseen" }, "Fields of the problem"),
    );
    form.addEventListener("reset", () => {
      clearTimeout(timer);
      this.query = [];
      this.selected = {};
      this.range = { size: null, from: null, to: null };
      this.makeFilters();
      this.updateFields();
      this.restart();
    });
    form.append(element("div", { class: "search" }, label, help || null), this.fold);
    this.makeFilters();
  }

  makeFilters() {
    const filters = this.filters.map(([name, label, valuesOf]) => {
      const all = valuesOf ? this.rows.flatMap(valuesOf) : this.rows.map((r) => r[name]);
      const values = distinct(all).map(String);
      const changed = () => {
        this.updateFields();
        this.restart();
      };
      return values.length > 1 ? this.filter(name, label, values, changed) : null;
    });
    const bound = (name, label) =>
      element(
        "label",
        {},
        label,
        element("input", {
          type: "number",
          step: "any",
          min: 0,
          inputmode: "decimal",
          class: "bound",
          oninput: (event) => {
            const { value } = event.target;
            this.range[name] = value === "" ? null : Number(value);
            this.restart();
          },
        }),
      );
    this.sizePlace = element("span", { class: "place" });
    const range = element("div", { class: "range" }, this.sizePlace, bound("from", "from"), bound("to", "to"));
    this.choices.replaceChildren(
      ...filters.filter(Boolean),
      ...(this.sizes.length ? [range] : []),
      this.fieldFilters,
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

  /* Which columns are shown, whether rows are exported, and on a phone, by what rows are sorted. */
  makeTools() {
    this.columnBoxes = element("fieldset", {}, element("legend", { class: "unseen" }, "Columns of the table"));
    this.sortPlace = element("span", { class: "place sort" });
    document.getElementById("count").parentElement.append(
      this.sortPlace,
      element("details", { class: "columns" }, element("summary", {}, "Columns"), this.columnBoxes),
      element("button", { type: "button", id: "export", onclick: () => this.download() }, "Export CSV"),
    );
  }

  /* Columns and filters for the fields of the problems that are left. */
  updateFields() {
    const rows = this.rows.filter(this.selection((name) => !name.endsWith("=")));
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
    const isText = (name) => rows.some((r) => typeof r[fieldKey(name)] === "string");
    const numeric = fields.filter((name) => !isText(name));
    this.updateSizes([...this.sizes, ...numeric.map((name) => [fieldKey(name), name, (r) => r[fieldKey(name)]])]);
    const at = this.fixed.findIndex((c) => c.name === "status");
    const ofFields = fields.map((name) => ({
      ...(isText(name) ? column : number)(fieldKey(name), name),
      shown: fields.length <= MOST_FIELDS,
    }));
    /* With fields, there is one operation: its column would say the same in every row. */
    const fixed = this.fixed.map((c) => (c.name === "op" && fields.length ? { ...c, shown: false } : c));
    this.known = fields.length ? [...fixed.slice(0, at), ...ofFields, ...fixed.slice(at)] : fixed;
    this.updateColumns();
    this.makeBoxes();
  }

  updateSizes(sizes) {
    if (!sizes.length) return;
    this.range.size = sizes.find(([name]) => name === this.range.size?.[0]) ?? sizes[0];
    const names = sizes.map(([name, label]) => [name, label]);
    const chosen = (value) => {
      this.range.size = sizes.find(([name]) => name === value);
      this.restart();
    };
    this.sizePlace.replaceChildren(choice("Size", names, chosen, this.range.size[0]));
  }

  isShown(c) {
    return c.name === "title" || (this.chosen.get(c.name) ?? c.shown);
  }

  updateColumns() {
    const hasPrinted = this.known.some((c) => c.printed);
    const before = this.columns;
    this.columns = this.known.filter((c) => (this.onPaper && hasPrinted ? c.printed : this.isShown(c)));
    /* Where each column that identifies rows stands among these, so that they stay side by side. */
    const keys = this.columns.filter((c) => c.key || c.name === "title");
    this.keyOf = new Map(keys.map((c, i) => [c.name, i]));
    if (!this.known.some((c) => c.name === this.sort)) this.sort = null;
    const isSame = (c, i) => c.name === before[i].name && c.align === before[i].align;
    if (before?.length !== this.columns.length || !this.columns.every(isSame)) this.makeHead();
  }

  makeBoxes() {
    const changed = () => {
      storedChoices.write(this.chosen);
      this.updateColumns();
      this.refresh();
    };
    const boxes = this.known
      .filter((c) => c.name !== "title")
      .map((c) => {
        const box = element("input", {
          type: "checkbox",
          checked: this.isShown(c),
          onchange: () => {
            this.chosen.set(c.name, box.checked);
            changed();
          },
        });
        return element("label", { class: "box" }, box, c.title);
      });
    const standard = () => {
      this.chosen.clear();
      changed();
      this.makeBoxes();
      this.columnBoxes.lastChild.focus();
    };
    this.columnBoxes.replaceChildren(
      this.columnBoxes.firstChild,
      ...boxes,
      element("button", { type: "button", onclick: standard }, "Standard columns"),
    );
  }

  makeHead() {
    const tr = element("tr", { "aria-rowindex": 1 });
    const sortBy = (name, descending) => {
      this.sort = name;
      this.descending = descending;
      this.refresh();
    };
    this.head = this.columns.map(({ name, title, align }) => {
      const toggle = () => sortBy(name, this.sort === name && !this.descending);
      const th = element(
        "th",
        { scope: "col", class: align, "data-column": name, "data-key": this.keyOf.get(name), "aria-sort": "none" },
        element("button", { type: "button", onclick: toggle }, title),
      );
      tr.append(th);
      return th;
    });
    this.table.tHead.replaceChildren(tr);
    this.painted = [];
    this.observer.disconnect();
    for (const node of [this.scroller, this.table, ...this.head.filter((th) => th.dataset.key)])
      this.observer.observe(node);
    /* Cards have no head to click on. */
    const orders = this.columns.flatMap(({ name, title }) => [
      [`${name} 0`, `${title}, ascending`],
      [`${name} 1`, `${title}, descending`],
    ]);
    const sorted = (value) => sortBy(value ? value.slice(0, -2) : null, value.endsWith("1"));
    this.sortPlace.replaceChildren(
      choice("Sort by", [["", "order of the file"], ...orders], sorted, `${this.sort} ${Number(this.descending)}`),
    );
  }

  /* A function that tells whether a row passes the filters, of those that count. */
  selection(counts = () => true) {
    const set = Object.entries(this.selected)
      .filter(([name, value]) => value && counts(name))
      .map(([name, value]) => [name, value, this.valuesOf.get(name)]);
    return (row) =>
      set.every(([name, value, valuesOf]) =>
        valuesOf ? valuesOf(row).includes(value) : String(row[name]) === value,
      );
  }

  isInRange(row) {
    const { size, from, to } = this.range;
    if (from == null && to == null) return true;
    const value = size[2](row);
    return value != null && (from == null || value >= from) && (to == null || value <= to);
  }

  matches(row) {
    if (!this.isInRange(row)) return false;
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

  /* How many filters are set, the search included. */
  get active() {
    const { from, to } = this.range;
    return Object.values(this.selected).filter(Boolean).length + (from != null || to != null) + (this.query.length > 0);
  }

  refresh() {
    const passes = this.selection();
    this.shown = this.rows.filter((row) => passes(row) && this.matches(row));
    const sorted = this.known.find((c) => c.name === this.sort);
    if (sorted) this.shown.sort((a, b) => this.compare(a, b, sorted.value) || a.id - b.id);
    document.getElementById("count").textContent = `${this.shown.length} of ${this.rows.length} rows`;
    this.foldTitle.textContent = this.active ? `Filters (${this.active} set)` : "Filters";
    this.table.setAttribute("aria-rowcount", this.shown.length + 1);
    this.head.forEach((th, i) =>
      th.setAttribute(
        "aria-sort",
        this.columns[i] === sorted ? (this.descending ? "descending" : "ascending") : "none",
      ),
    );
    this.repaint();
  }

  repaint() {
    this.first = -1;
    this.paint();
  }

  /* An element that covers the whole width of the table. */
  wideRow(attributes, ofCell, ...children) {
    return element("tr", attributes, element("td", { colspan: this.columns.length, ...ofCell }, ...children));
  }

  /* A row without the texts of a case. */
  emptyRow() {
    const cells = this.columns.map(({ name, title, align, wide }) => {
      const ofCard = name === "title" ? {} : { "data-label": title, "data-wide": wide ?? title.length > 12 };
      return element("td", { class: align, "data-column": name, "data-key": this.keyOf.get(name), ...ofCard });
    });
    return element("tr", {}, ...cells);
  }

  /* Show a case in a row that may have shown another one: the browser lays out only what differs. */
  fill(tr, row, place) {
    tr.setAttribute("aria-rowindex", place + 2);
    if (tr.dataset.id === String(row.id)) return tr;
    tr.dataset.id = row.id;
    this.columns.forEach(({ name, show, full }, i) => {
      const td = tr.cells[i],
        text = show(row);
      const shown = this.open && name === "title" ? this.open(row, text) : text;
      /* Another text in a node costs less than another node. */
      if (typeof shown === "string" && td.lastChild) td.lastChild.data = shown;
      else td.replaceChildren(shown);
      if (full) td.title = full(row) ?? "";
      this.decorate?.(td, name, row);
    });
    return tr;
  }

  paint() {
    if (this.onPaper) this.paintPaper();
    else this.paintScreen();
  }

  /* The rows that can be seen, and some before and after them. */
  paintScreen() {
    const count = this.shown.length,
      at = Math.max(0, Math.min(Math.floor(this.scroller.scrollTop / this.rowHeight), count - this.visible)),
      first = at - (at % 10);
    if (first === this.first) return;
    this.first = first;
    const start = Math.max(0, first - EXTRA_ROWS),
      end = Math.min(count, first + 10 + this.visible + EXTRA_ROWS);
    /* A button keeps the keyboard focus when its case is in another row. */
    const focusedId = () => document.activeElement?.closest?.("#table tbody tr")?.dataset.id;
    const focused = focusedId();
    const gap = (rows) => {
      const style = `height:${rows * this.rowHeight}px`;
      return rows ? [this.wideRow({ class: "gap", "aria-hidden": "true" }, { style })] : [];
    };
    const areNew = !this.painted.length;
    if (areNew) this.body.replaceChildren();
    this.body.querySelectorAll(".gap").forEach((tr) => tr.remove());
    this.painted.splice(end - start).forEach((tr) => tr.remove());
    this.painted.forEach((tr, i) => this.fill(tr, this.shown[start + i], start + i));
    const more = this.shown.slice(start + this.painted.length, end);
    const added = more.map((row, i) => this.fill(this.emptyRow(), row, start + this.painted.length + i));
    this.painted.push(...added);
    this.body.prepend(...gap(start));
    this.body.append(...added, ...gap(count - end));
    if (focused != null && focused !== focusedId())
      this.body.querySelector(`tr[data-id="${focused}"] :is(button, a)`)?.focus({ preventScroll: true });
    if (areNew && this.measure()) this.repaint();
  }

  /* Columns that stay visible stand side by side. Rows and cards are as high as the font and the columns make them.
     Returns whether other rows, or more of them, can be seen than was thought. */
  measure() {
    const slides = this.scroller.scrollWidth > this.scroller.clientWidth;
    this.table.classList.toggle("slides", slides);
    if (slides) {
      let left = 0;
      for (const th of this.head.filter((th) => th.dataset.key)) {
        this.table.style.setProperty(`--left-${th.dataset.key}`, `${left}px`);
        left += th.getBoundingClientRect().width;
      }
    }
    const height = this.painted[0]?.getBoundingClientRect().height || this.rowHeight,
      visible = Math.ceil(this.scroller.clientHeight / height);
    if (Math.abs(height - this.rowHeight) < 0.5 && visible <= this.visible) return false;
    this.rowHeight = height;
    this.visible = visible;
    return true;
  }

  paintPaper() {
    const isChosen = this.isPrinted && !this.active && this.shown.some(this.isPrinted);
    const rows = isChosen ? this.shown.filter(this.isPrinted) : this.shown;
    const printed = rows.slice(0, isChosen ? MOST_CHOSEN : MOST_PRINTED);
    const what = [
      `Printed: ${printed.length} of ${this.shown.length} rows`,
      isChosen && ", of each problem the fastest library",
      printed.length < rows.length && `, the first ${printed.length} of them; filters choose others`,
      ". The page and its CSV export have all.",
    ];
    this.body.replaceChildren(
      ...(printed.length < this.shown.length ? [this.wideRow({}, {}, what.filter(Boolean).join(""))] : []),
      ...printed.map((row, i) => this.fill(this.emptyRow(), row, i)),
    );
    this.painted = [];
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
