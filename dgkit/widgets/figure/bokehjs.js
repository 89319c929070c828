// Bokeh figures in a panel. BokehJS comes from the view's own kernel, once a page: no network.

const bokehOf = (version) =>
  window.Bokeh?.version === version ? window.Bokeh : window.Bokeh?.[version] ?? null;

const bokehPage = (window.__dgkitBokeh ??= { asked: -Infinity, loading: new Map() });

const pausing = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function runScripts(sources) {
  for (const source of sources) {
    const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    try {
      await new Promise((resolve, reject) => {
        const gone = () => reject(new Error("the page refuses to run BokehJS"));
        document.head.append(h("script", { src: url, onload: resolve, onerror: gone }));
      });
    } finally {
      URL.revokeObjectURL(url);
    }
  }
}

// The parts that the page has not. A view may wait for bytes that are in the page already, but for
// no other view's kernel: after three seconds it asks its own.
async function loadBokeh(view, version, names) {
  const missing = () => names.filter((name) =>
    name === "bokeh" ? !bokehOf(version) : !bokehPage.loading.get(`${version}/${name}`)?.done);
  while (missing().length && performance.now() - bokehPage.asked < 3000) await pausing(20);
  const wanted = missing();
  if (wanted.length) {
    bokehPage.asked = performance.now();
    const { buffers } = await view.call("bokehjs", { names: wanted });
    await runOnce(wanted.map((name) => `${version}/${name}`), buffers);
  }
  return calmStyles(bokehOf(version));
}

// At each paint BokehJS writes the position of each part into a style element anew. Written as it
// was it still makes the browser compute all styles and the layout again, which is half of a frame.
function calmStyles(Bokeh) {
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
    const running = known && !known.done ? known : { done: false }; // done and wanted: it is gone
    bokehPage.loading.set(name, running);
    const failed = (error) => {
      bokehPage.loading.delete(name); // who comes next tries again
      bokehPage.asked = -Infinity;
      throw error;
    };
    running.promise ??= runScripts([sources[at]]).then(() => (running.done = true)).catch(failed);
    await running.promise;
  }
}

// Draws the kernel's figures: places(document) says into which element each root goes. It returns
// what is drawn ({Bokeh, document, views, remove}), and is called anew when the theme changes.
async function drawFigures(view, places) {
  const { bokeh } = view.state;
  const core = loadBokeh(view, bokeh, ["bokeh"]); // while the kernel makes the figures
  const [figures] = await Promise.all([view.call("figures", { dark: isDark() }), core]);
  const Bokeh = await loadBokeh(view, bokeh, figures.components);
  if (view.signal.aborted) return null;
  const made = Bokeh.require("document").Document.from_json(JSON.parse(figures.document));
  const elements = places(made);
  elements.forEach((element) => element?.replaceChildren());
  const roots = made.roots().map((_root, at) => elements[at] ?? h("div"));
  const views = await Bokeh.require("embed/standalone").add_document_standalone(made, roots[0], roots);
  const remove = () => { views.clear(); made.clear(); forget(Bokeh, made); };
  return { Bokeh, document: made, views, remove };
}

// BokehJS keeps each document of a page, also an empty one.
function forget(Bokeh, made) {
  const at = Bokeh.documents.indexOf(made);
  if (at >= 0) Bokeh.documents.splice(at, 1);
}

// Keeps figures drawn in the page's theme; drawn(figures) is called after each time they are.
function renderFigures(view, places, drawn) {
  let now = null, dark = null, busy = Promise.resolve();
  const redraw = () => (busy = busy.then(async () => {
    if (dark === isDark() || view.signal.aborted) return;
    dark = isDark();
    const made = await drawFigures(view, places);
    now?.remove();
    now = made;
    if (now) drawn(now);
  }).catch((error) => { dark = null; view.fail(error); }));
  onTheme(redraw, view.signal);
  view.signal.addEventListener("abort", () => busy.then(() => now?.remove()));
  return redraw();
}
