// Forms and tables: errors are shown next to their field; focus moves on from a removed row.

import { choice, field, focusedElement, h, newId } from "./elements.js";

// Marks a control as invalid with a message next to it, or as valid if the message is empty.
export function mark(control, message = "") {
  const box = control.closest(".dg-field");
  let note = box.querySelector(".dg-wrong");
  if (!note) {
    note = h("span", { class: "dg-wrong", id: newId(), "aria-live": "polite" });
    box.append(note);
    const others = control.getAttribute("aria-describedby");
    control.setAttribute("aria-describedby", others ? `${others} ${note.id}` : note.id);
  }
  note.textContent = message;
  if (message) control.setAttribute("aria-invalid", "true");
  else control.removeAttribute("aria-invalid");
  return !message;
}

// Shows an error in the strip and marks the field at fault.
export function showFieldError(view, controls, error) {
  view.fail(error);
  const control = controls[error.field];
  if (control) {
    mark(control, error.message ?? error.text);
    control.focus();
  }
}

// Label and default of a pattern's value.
const valueNames = { seed: "Seed", byte: "Byte", text: "Text" };
const valueDefaults = { seed: "1", byte: "0xab", text: "dgkit " };

// The message for an invalid value of a pattern, or "".
export function valueError(kind, text) {
  const number = /^\s*(0x[0-9a-f]+|\d+)\s*$/i.test(text) ? Number(text) : NaN;
  if (kind === "seed" && !(number >= 0)) return "an integer, 0 or more";
  if (kind === "byte" && !(number >= 0 && number <= 255)) return "0 to 255, or 0x00 to 0xff";
  return kind === "text" && !text ? "enter the text to repeat" : "";
}

// A choice of a pattern, and the field of its value, which is shown if the pattern takes one.
export function patternFields(fills, first) {
  const kind = choice(fills);
  kind.value = first;
  const value = h("input", { autocomplete: "off" });
  const valueBox = field("Value", value);
  const parameter = () => fills.find(([name]) => name === kind.value)[2];
  const changed = () => {
    value.value = valueDefaults[parameter()] ?? "";
    valueBox.hidden = !parameter();
    valueBox.querySelector("label").textContent = valueNames[parameter()] ?? "Value";
  };
  kind.addEventListener("change", changed);
  changed();
  return {
    kind,
    value,
    valueBox,
    hasValue: () => Boolean(parameter()),
    text: () => (parameter() ? `${kind.value}:${value.value}` : kind.value),
    error: () => valueError(parameter(), value.value),
    control: () => (parameter() ? value : kind), // which an error is about
  };
}

// A table with a caption and headers; ">" at the start of a header marks a column of numbers. A last
// column "Actions" stays visible when the table scrolls sideways.
export function tableOf(caption, headers) {
  const cells = headers.map((name) => {
    const number = name.startsWith(">");
    return h("th", { scope: "col", class: number ? "dg-number" : false }, number ? name.slice(1) : name);
  });
  const body = h("tbody");
  const table = h(
    "table",
    headers.at(-1) === "Actions" ? { class: "dg-acts" } : {},
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, ...cells)),
    body,
  );
  return {
    table,
    body,
    box: h("div", { class: "dg-scroll", tabindex: 0, role: "region", "aria-label": caption }, table),
  };
}

// Replaces the rows of a table. Unchanged rows (equal data-row and content) keep their elements, so
// that a click in progress completes. The focused control is found again by its data-key; if its row
// is gone, focus moves to the same control of the next row, else of the last row, else to `fallback`.
export function replaceRows(body, newRows, fallback) {
  const active = body.contains(document.activeElement) ? focusedElement() : null;
  const key = active?.dataset.key;
  const at = active ? [...body.rows].indexOf(active.closest("tr")) : -1;
  updateRows(body, newRows);
  if (!active || active === document.activeElement) return;
  const same = key && body.querySelector(`[data-key="${CSS.escape(key)}"]`);
  const row = body.rows[Math.min(at, body.rows.length - 1)];
  const kind = key?.split(":")[0];
  const next = kind && row?.querySelector(`[data-key^="${CSS.escape(kind)}:"]:not(:disabled)`);
  (same && !same.disabled ? same : (next ?? row?.querySelector("button") ?? fallback))?.focus();
}

function updateRows(body, newRows) {
  const old = new Map([...body.rows].map((row) => [row.dataset.row, row]));
  const wanted = newRows.map((row) => {
    const previous = old.get(row.dataset.row);
    return previous?.isEqualNode(row) ? previous : row;
  });
  const kept = new Set(wanted);
  for (const row of [...body.rows]) if (!kept.has(row)) row.remove();
  wanted.forEach((row, at) => body.rows[at] === row || body.insertBefore(row, body.rows[at] ?? null));
}
