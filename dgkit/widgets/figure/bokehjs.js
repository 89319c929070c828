// Bokeh figures in a panel. BokehJS comes from the view's kernel, once per page, not the network.

import { h } from "../base/elements.js";
import { isDark, onTheme, onZoom, sleep, zoomOf } from "../base/page.js";

const bokehOf = (version) => (window.Bokeh?.version === version ? window.Bokeh : (window.Bokeh?.[version] ?? null));

export const bokehPage = (window.__dgkitBokeh ??= { requested: -Infinity, loading: new Map() });

// The policy of a page allows blobs (JupyterLab's strictest) or inline scripts (VS Code's).
async function runScript(source) {
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  const ran = await new Promise((resolve) => {
    document.head.append(h("script", { src: url, onload: () => resolve(true), onerror: () => resolve(false) }));
  });
  URL.revokeObjectURL(url);
  if (ran) return;
  const inline = h("script", {}, new TextDecoder().decode(source), "\ndocument.currentScript.dataset.ran = '';");
  document.head.append(inline);
  if (!("ran" in inline.dataset)) throw new Error("the page refuses to run BokehJS");
}

// Loads the parts that the page lacks. A view waits up to three seconds for a request of another
// view, whose kernel may be busy, before it requests them from its own kernel.
export async function loadBokeh(view, version, names) {
  const missing = () =>
    names.filter((name) => (name === "bokeh" ? !bokehOf(version) : !bokehPage.loading.get(`${version}/${name}`)?.done));
  while (missing().length && performance.now() - bokehPage.requested < 3000) await sleep(20);
  const wanted = missing();
  if (wanted.length) {
    bokehPage.requested = performance.now();
    const { buffers } = await view.call("bokehjs", { names: wanted });
    await runOnce(
      wanted.map((name) => `${version}/${name}`),
      buffers,
    );
  }
  return skipUnchangedStyles(bokehOf(version));
}

// At each paint BokehJS rewrites the position of each part in a style element. Even unchanged text
// makes the browser recompute all styles and the layout, which takes half of the frame time.
function skipUnchangedStyles(Bokeh) {
  const sheet = Bokeh.require("core/dom").InlineStyleSheet?.prototype;
  if (sheet && !Object.hasOwn(sheet, "dgkitWrite") && typeof sheet._update === "function") {
    sheet.dgkitWrite = sheet._update;
    sheet._update = function update(css) {
      if (this.el.textContent !== css) this.dgkitWrite(css);
    };
  }
  return Bokeh;
}

async function runOnce(names, sources) {
  for (const [at, name] of names.entries()) {
    const known = bokehPage.loading.get(name);
    const entry = known && !known.done ? known : { done: false }; // if done but missing, reload
    bokehPage.loading.set(name, entry);
    const failed = (error) => {
      bokehPage.loading.delete(name); // the next view tries again
      bokehPage.requested = -Infinity;
      throw error;
    };
    entry.promise ??= runScript(sources[at])
      .then(() => (entry.done = true))
      .catch(failed);
    await entry.promise;
  }
}

// The kernel answers one request after the other, and needs .3 s to import Bokeh: what other panels of
// a new dashboard ask for as they become visible, after a frame, goes first. A hidden page has no frames.
async function othersAsked() {
  await Promise.race([new Promise(requestAnimationFrame), sleep(100)]);
  await sleep(20);
}

// Draws the kernel's figures; places(document) returns the element for each root. Resolves to
// {Bokeh, document, views, remove}, or null if the view has ended meanwhile.
export async function drawFigures(view, places) {
  const { bokeh } = view.state;
  await othersAsked();
  if (view.signal.aborted) return null;
  const core = loadBokeh(view, bokeh, ["bokeh"]); // runs while the kernel creates the figures
  const [figures] = await Promise.all([view.call("figures", { dark: isDark() }), core]);
  const Bokeh = await loadBokeh(view, bokeh, figures.components);
  if (view.signal.aborted) return null;
  const content = Bokeh.require("document").Document.from_json(JSON.parse(figures.document));
  const elements = places(content);
  elements.forEach((element) => element?.replaceChildren());
  const roots = content.roots().map((_root, at) => elements[at] ?? h("div"));
  const views = await Bokeh.require("embed/standalone").add_document_standalone(content, roots[0], roots);
  const remove = () => {
    views.clear();
    content.clear();
    removeDocument(Bokeh, content);
  };
  return { Bokeh, document: content, views, remove };
}

// Scales the fonts of figures that were drawn with those of 100 %.
function scaleFonts({ document: content }, zoom) {
  for (const model of content._all_models.values())
    for (const { attr } of Object.values(model.properties ?? {})) {
      if (!attr.endsWith("text_font_size")) continue;
      const size = (model.dgkitSizes ??= {});
      size[attr] ??= Number.parseFloat(model[attr]);
      if (String(model[attr]).endsWith("px")) model[attr] = `${size[attr] * zoom}px`;
    }
}

// Removes a document from the page's list, in which BokehJS keeps even empty ones.
export function removeDocument(Bokeh, content) {
  const at = Bokeh.documents.indexOf(content);
  if (at >= 0) Bokeh.documents.splice(at, 1);
}

// Draws figures, again after each change of the page's theme; calls drawn(figures) each time. Until the
// kernel, which may be busy, has sent those of the other theme, the style sheet inverts them.
export function renderFigures(view, places, drawn) {
  let current = null;
  let dark = null;
  let drawnDark = null;
  let pending = Promise.resolve();
  const invert = () => view.root.toggleAttribute("data-inverted", Boolean(current) && drawnDark !== isDark());
  const redraw = () =>
    (pending = pending
      .then(async () => {
        if (dark === isDark() || view.signal.aborted) return;
        const wanted = (dark = isDark());
        const figures = await drawFigures(view, places);
        current?.remove();
        current = figures;
        drawnDark = wanted;
        invert();
        if (!current) return;
        if (zoomOf(view.root) !== 1) scaleFonts(current, zoomOf(view.root));
        drawn(current);
      })
      .catch((error) => {
        dark = null;
        view.fail(error);
      }));
  onTheme(() => {
    invert();
    redraw();
  }, view.signal);
  onZoom(view.root, (zoom) => current && scaleFonts(current, zoom), view.signal);
  view.signal.addEventListener("abort", () => pending.then(() => current?.remove()));
  return redraw();
}
