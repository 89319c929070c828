// Forms and tables: what is wrong is said beside the field, and focus goes on from a removed row.

// The control of a field that is wrong, and the words beside it; without words it is right.
function mark(control, words = "") {
  const box = control.closest(".dg-field");
  let note = box.querySelector(".dg-wrong");
  if (!note) {
    note = h("span", { class: "dg-wrong", id: dgId(), "aria-live": "polite" });
    box.append(note);
    const others = control.getAttribute("aria-describedby");
    control.setAttribute("aria-describedby", others ? `${others} ${note.id}` : note.id);
  }
  note.textContent = words;
  if (words) control.setAttribute("aria-invalid", "true");
  else control.removeAttribute("aria-invalid");
  return !words;
}

// Marks the field that an error is about, and shows the error in the strip.
function showFieldError(view, controls, error) {
  view.fail(error);
  const control = controls[error.field];
  if (control) {
    mark(control, error.message ?? error.text);
    control.focus();
  }
}

// "1024, 1024", "(64, 64)", "1M" as lengths, or null.
function parseShape(text) {
  const inner = text.trim().replace(/^\(/, "").replace(/\)$/, "").replace(/^[\s,]+|[\s,]+$/g, "");
  const lengths = inner.split(",").map(parseSize);
  return lengths.every((length) => length > 0) ? lengths : null;
}

// What a pattern's value is called, begins as, and must be.
const valueNames = { seed: "Seed", byte: "Byte", text: "Text" };
const valueStarts = { seed: "1", byte: "0xab", text: "dgkit " };

function wrongValue(kind, text) {
  const number = /^\s*(0x[0-9a-f]+|\d+)\s*$/i.test(text) ? Number(text) : NaN;
  if (kind === "seed" && !(number >= 0)) return "a whole number, 0 or more";
  if (kind === "byte" && !(number >= 0 && number <= 255)) return "0 to 255, or 0x00 to 0xff";
  return kind === "text" && !text ? "the text that is repeated" : "";
}

function sizeText(size) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let value = size;
  for (; value >= 1024 && unit < units.length - 1; unit++) value /= 1024;
  const text = Number.isInteger(value) ? String(value) : value.toFixed(2);
  return unit ? `${text} ${units[unit]} (${size.toLocaleString("en-US")} bytes)` : `${text} bytes`;
}

// A table with a caption and headers; a header that starts with ">" is for numbers. A last column
// of actions stays in sight when the table scrolls.
function tableOf(caption, headers) {
  const cells = headers.map((name) => {
    const number = name.startsWith(">");
    return h("th", { scope: "col", class: number ? "dg-number" : false }, number ? name.slice(1) : name);
  });
  const body = h("tbody");
  const table = h("table", headers.at(-1) === "Actions" ? { class: "dg-acts" } : {}, h("caption", {}, caption),
    h("thead", {}, h("tr", {}, ...cells)), body);
  return { table, body, box: h("div", { class: "dg-scroll", tabindex: 0, role: "region", "aria-label": caption }, table) };
}

// Puts new rows in a table. A row that is as it was (the same data-row, the same text) stays, and a
// click that began on it ends on it. A control that had the focus has it again, by its data-key;
// where its row is gone, the same control of the next row has it, else of the last, else `rest`.
function rows(body, made, rest) {
  const active = body.contains(document.activeElement) ? document.activeElement : null;
  const key = active?.dataset.key;
  const at = active ? [...body.rows].indexOf(active.closest("tr")) : -1;
  exchange(body, made);
  if (!active || active === document.activeElement) return;
  const same = key && body.querySelector(`[data-key="${CSS.escape(key)}"]`);
  const row = body.rows[Math.min(at, body.rows.length - 1)];
  const kind = key?.split(":")[0];
  const next = kind && row?.querySelector(`[data-key^="${CSS.escape(kind)}:"]:not(:disabled)`);
  (same && !same.disabled ? same : next ?? row?.querySelector("button") ?? rest)?.focus();
}

function exchange(body, made) {
  const old = new Map([...body.rows].map((row) => [row.dataset.row, row]));
  const wanted = made.map((row) => {
    const was = old.get(row.dataset.row);
    return was?.isEqualNode(row) ? was : row;
  });
  const kept = new Set(wanted);
  for (const row of [...body.rows]) if (!kept.has(row)) row.remove();
  wanted.forEach((row, at) => body.rows[at] === row || body.insertBefore(row, body.rows[at] ?? null));
}

// A polite status line: what has happened, for those who see it and those who hear it.
const statusLine = () => h("p", { role: "status", class: "dg-status" });
