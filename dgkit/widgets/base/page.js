// The page around a panel: clipboard, files, theme, visibility, keys.

import { focusedElement, h } from "./elements.js";

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Copies text to the clipboard, also where the page has no Clipboard API (plain http).
export async function toClipboard(text) {
  try {
    return await navigator.clipboard.writeText(text);
  } catch {
    /* missing or not permitted */
  }
  const area = h("textarea", { ".value": text, style: "position:fixed;opacity:0", "aria-hidden": "true" });
  document.body.append(area);
  const before = focusedElement();
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  before?.focus();
  if (!done) throw new Error("the browser denied access to the clipboard");
}

export function download(name, type, data) {
  const url = URL.createObjectURL(new Blob([data], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

export const isDark = () => {
  const light = document.body.dataset.jpThemeLight;
  return light ? light === "false" : matchMedia("(prefers-color-scheme: dark)").matches;
};

// Calls `change(dark)` after each change of the page's theme, until the signal is aborted.
export function onTheme(change, signal) {
  const watch = new MutationObserver(() => change(isDark()));
  watch.observe(document.body, { attributeFilter: ["data-jp-theme-light", "data-jp-theme-name"] });
  signal.addEventListener("abort", () => watch.disconnect());
}

// Calls `change(visible)` when the element enters or leaves the viewport, until the signal is aborted.
export function onVisible(element, change, signal) {
  const watch = new IntersectionObserver((entries) => change(entries.at(-1).isIntersecting));
  watch.observe(element);
  signal.addEventListener("abort", () => watch.disconnect());
}

// Keeps keys from JupyterLab: all keys in elements that take text or handle keys themselves,
// elsewhere those without Ctrl, Alt or Meta. JupyterLab binds commands to single letters and may
// handle the event first, so its own attribute is used to suppress these commands.
const TAKES_KEYS = "input, textarea, select, [contenteditable], [role=grid]";

export function keepKeys(root, signal) {
  const own = (event) =>
    event.composedPath().includes(root) &&
    (event.target.closest(TAKES_KEYS) || !(event.ctrlKey || event.metaKey || event.altKey));
  const suppress = (event) => root.toggleAttribute("data-lm-suppress-shortcuts", Boolean(own(event)));
  window.addEventListener("keydown", suppress, { capture: true, signal });
  for (const kind of ["keydown", "keyup", "keypress", "paste", "copy", "cut"])
    root.addEventListener(kind, (event) => own(event) && event.stopPropagation());
}
