// Elements: creation, labelled controls, and the focus.

export const MAX_TEXT = 4096; // characters in a text field: the browser lays out all of them

// Creates an element. Attributes starting with "on" are event handlers, with "." properties.
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  if (tag === "input" || tag === "textarea") element.maxLength = MAX_TEXT;
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key.startsWith(".")) element[key.slice(1)] = value;
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

let serial = 0;

/** @type {() => any} */
export const focusedElement = () => document.activeElement;

export const newId = () => `dgkit-${++serial}-${Math.random().toString(36).slice(2, 8)}`;

// A control with its visible label, which is also its accessible name.
export function field(label, control, help) {
  control.id ||= newId();
  const parts = [h("label", { for: control.id }, label), control];
  if (help) {
    const note = h("span", { class: "dg-help", id: newId() }, help);
    control.setAttribute("aria-describedby", note.id);
    parts.push(note);
  }
  return h("div", { class: "dg-field" }, ...parts);
}

export function choice(options, attributes = {}) {
  const items = options.map((item) => {
    const [value, text] = Array.isArray(item) ? item : [item, item];
    return h("option", { value }, text);
  });
  return h("select", attributes, ...items);
}

// Sets the options of a select element and keeps the selection if it is still offered.
// Unchanged options are left alone, so that an open list stays open.
export function setOptions(select, options, value = select.value) {
  const items = [...choice(options).children];
  const same = items.length === select.length && items.every((item, at) => item.isEqualNode(select[at]));
  if (!same) select.replaceChildren(...items);
  if (select.value !== String(value)) select.value = value;
  if (select.selectedIndex < 0 && select.options.length) select.selectedIndex = 0;
}

export const button = (text, onclick, attributes = {}) =>
  h("button", { type: "button", class: "dg-button", onclick, ...attributes }, text);

// Runs `change`. If it hides, disables or removes the focused element, the focus moves to the first
// of `others` that can take it.
export function keepFocus(change, ...others) {
  const focused = document.activeElement;
  const usable = (element) => element?.isConnected && !element.matches(":disabled") && element.getClientRects().length;
  const wasUsable = usable(focused);
  change();
  const next = wasUsable && !usable(focused) && others.find(usable);
  if (!next) return;
  if (next.tabIndex < 0 && !next.hasAttribute("tabindex")) {
    // only for now: clicks must not focus it
    next.tabIndex = -1;
    next.addEventListener("blur", () => next.removeAttribute("tabindex"), { once: true });
  }
  next.focus();
}

export const bytesOf = (view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength);

// A status line that screen readers announce politely.
export const statusLine = () => h("p", { role: "status", class: "dg-status" });
