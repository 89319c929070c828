// The page around a panel: clipboard, files, the notebook, theme, visibility, keys.

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

const FONT_PX = 14; // --jp-content-font-size1 of a page that nobody has changed

// Scales a panel with the font size of the page's content, which its settings and the presentation
// mode of JupyterLab change. `outside` is an element around the panel.
export function followFontSize(outside, root, signal) {
  const ruler = h("span", {
    style: "position:absolute;visibility:hidden;height:0;width:var(--jp-content-font-size1, 14px)",
  });
  const apply = () => {
    const size = Number.parseFloat(getComputedStyle(outside).getPropertyValue("--jp-content-font-size1"));
    const zoom = Math.min(4, Math.max(0.5, (size || FONT_PX) / FONT_PX));
    if (root.style.getPropertyValue("--dg-zoom") === String(zoom)) return;
    root.style.zoom = zoom;
    root.style.setProperty("--dg-zoom", zoom);
    root.dispatchEvent(new CustomEvent("dg-zoom"));
  };
  const watch = new ResizeObserver(apply);
  outside.append(ruler);
  watch.observe(ruler);
  signal.addEventListener("abort", () => watch.disconnect());
  apply();
}

export const zoomOf = (root) => Number(getComputedStyle(root).getPropertyValue("--dg-zoom")) || 1;

// Calls `change(zoom)` after each change of a panel's scale, until the signal is aborted.
export function onZoom(root, change, signal) {
  for (let panel = root; panel; panel = panel.parentElement?.closest(".dgkit"))
    panel.addEventListener("dg-zoom", () => change(zoomOf(root)), { signal });
}

// Calls `change(visible)` when the element enters or leaves the viewport, and when the page is hidden
// or shown, until the signal is aborted.
export function onVisible(element, change, signal) {
  let intersects = false;
  const tell = () => change(intersects && !document.hidden);
  const watch = new IntersectionObserver((entries) => {
    intersects = entries.at(-1).isIntersecting;
    tell();
  });
  watch.observe(element);
  document.addEventListener("visibilitychange", tell, { signal });
  signal.addEventListener("abort", () => watch.disconnect());
}

// Reports to the kernel whether a view is visible: at each change, and while it is visible, every
// `everyMs` milliseconds as long as `wanted()`. `shown(reply)` follows when it has become visible.
// Returns a function that reports at once.
export function reportVisibility(view, id, everyMs, shown = (_reply) => {}, wanted = () => true) {
  let visible = false;
  let pending = 0;
  const report = (appears = false) => {
    pending += 1;
    view
      .call("watch", { view: id, on: visible })
      .then((reply) => appears && shown(reply))
      .catch(view.fail)
      .finally(() => (pending -= 1));
  };
  onVisible(
    view.root,
    (on) => {
      const appears = on && !visible;
      visible = on;
      report(appears);
    },
    view.live,
  );
  const timer = setInterval(() => visible && !pending && wanted() && report(), everyMs);
  view.live.addEventListener("abort", () => {
    clearInterval(timer);
    view.call("watch", { view: id, on: false }).catch(() => {}); // the kernel may have ended
  });
  return report;
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
