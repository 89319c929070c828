// AllocatePanel: the form, what is being filled, the regions, a descriptor, the notebook's names.

function memoryControls(view) {
  return {
    name: h("input", { autocomplete: "off", placeholder: "optional" }),
    shape: h("input", { value: "1M", autocomplete: "off", spellcheck: "false" }),
    dtype: choice(view.state.dtypes),
    on: h("select"),
    fill: choice(view.state.fills),
    value: h("input", { autocomplete: "off" }),
  };
}

// Marks what is wrong, and says in `size` how many bytes it would be. `needs` is what the fill needs.
function checkMemory(c, needs, size) {
  const lengths = parseShape(c.shape.value);
  const good = mark(c.shape, lengths ? "" : "lengths, as 1024, 1024 or 4096 or 1M");
  const bytes = (lengths ?? []).reduce((all, n) => all * n, Number(c.dtype.value.slice(1)));
  size.textContent = good ? `= ${sizeText(bytes)}` : "";
  mark(c.value, wrongValue(needs, c.value.value));
  mark(c.on);
}

async function sendMemory(view, c, needs, said) {
  const fill = needs ? `${c.fill.value}:${c.value.value}` : c.fill.value;
  const fields = { shape: c.shape.value, dtype: c.dtype.value, on: c.on.value, fill, name: c.name.value.trim() };
  try {
    await view.call("make", fields);
    view.clear();
    said.textContent = "Allocating…";
    c.name.value = ""; // the next one has another
  } catch (error) {
    showFieldError(view, { ...c, fill: needs ? c.value : c.fill }, error);
  }
}

function makeForm(view, said) {
  const c = memoryControls(view);
  const size = h("output", { class: "dg-size", "aria-live": "polite" });
  const value = field("Seed", c.value);
  const go = button("Allocate", null, { class: "dg-button dg-main", type: "submit" });
  const needs = () => view.state.fills.find(([kind]) => kind === c.fill.value)[2];
  const check = () => checkMemory(c, needs(), size);
  const chosen = () => {
    c.value.value = valueStarts[needs()] ?? "";
    value.hidden = !needs();
    value.querySelector("label").textContent = valueNames[needs()] ?? "Value";
    check();
  };
  const send = (event) => {
    event.preventDefault();
    check();
    const wrong = form.querySelector('[aria-invalid="true"]');
    if (wrong) wrong.focus();
    else sendMemory(view, c, needs(), said);
  };
  const form = h("form", { class: "dg-form", onsubmit: send, oninput: check, novalidate: true },
    field("Name", c.name), field("Shape, items", c.shape), field("dtype", c.dtype),
    field("Where", c.on), field("Fill pattern", c.fill), value,
    h("div", { class: "dg-wide dg-bar" }, go, size));
  c.fill.addEventListener("change", chosen);
  chosen();
  return { form, controls: c, go };
}

// Where memory can be: what is not usable is there, disabled, and says why.
function showPlaces(select, why, places) {
  const before = select.value || "host";
  select.replaceChildren(...places.map((place) =>
    h("option", { value: place.value, disabled: Boolean(place.why), title: place.why }, place.why ? `${place.text} (not usable)` : place.text)));
  select.value = before;
  if (!select.value) select.value = "host";
  const closed = [...new Set(places.map((place) => place.why).filter(Boolean))];
  why.replaceChildren(...closed.map((text) => h("p", { class: "dg-help" }, `GPU memory is not usable: ${text}`)));
}

function makeRegions(view, said, exported, form) {
  const headers = ["Name", ">Size", "Items", "Place", "Provider", "Access", "Exported", "Actions"];
  const { table, body, box } = tableOf("Live regions", headers);
  const none = h("p", { class: "dg-help" }, "There is no region yet: allocate one, or register a variable.");
  let asking = 0;
  const free = async (region, sure) => {
    const reply = await view.attempt("free", { region: region.id, sure });
    asking = reply?.in_use ? region.id : 0;
    if (reply?.in_use) said.textContent = `${reply.in_use}. Freeing it now ends that.`;
    draw(view.session);
  };
  const asked = (region) => [
    button("Keep", () => { asking = 0; said.textContent = ""; draw(view.session); }, { "data-key": `free:${region.id}` }),
    button("Free anyway", () => free(region, true), { "data-key": `sure:${region.id}` }),
  ];
  const actions = (region, selected) => [
    button("Look", () => view.attempt("look", { region: region.id }), {
      "aria-pressed": String(region.id === selected), "aria-label": `Look at ${region.name}`, "data-key": `look:${region.id}` }),
    button("Export", () => exported.open(region), { "aria-label": `Export ${region.name}`, "data-key": `export:${region.id}` }),
    ...(asking === region.id ? asked(region)
      : [button("Free", () => free(region, false), { "aria-label": `Free ${region.name}`, "data-key": `free:${region.id}` })]),
  ];
  const line = (region, selected) => h("tr", { "data-row": region.id, class: region.id === selected ? "dg-row-chosen" : false },
    h("th", { scope: "row", title: region.chosen || null }, region.name), h("td", { class: "dg-number", title: `${region.size.toLocaleString("en-US")} bytes` }, region.text),
    h("td", {}, region.here ? `${region.shape.join(" × ")} ${region.dtype}` : "bytes, at the agent"),
    h("td", {}, region.where), h("td", {}, region.provider), h("td", { title: region.access_text }, region.access),
    h("td", {}, region.exported ? "yes" : "no"), h("td", {}, ...actions(region, selected)));
  const draw = (desk) => {
    view.session = desk;
    rows(body, desk.regions.map((region) => line(region, desk.selected)), form.go);
    none.hidden = desk.regions.length > 0;
    box.hidden = !none.hidden;
    table.caption.textContent = desk.count > desk.regions.length
      ? `Live regions: the newest ${desk.regions.length} of ${desk.count.toLocaleString("en-US")}` : "Live regions";
  };
  return { part: h("div", {}, none, box), draw };
}

function makeExport(view) {
  const area = h("textarea", { rows: 4, readonly: true, spellcheck: "false" });
  const kind = choice([["hex", "hex"], ["base64", "base64"]]);
  const what = h("p", { class: "dg-help" });
  const done = statusLine();
  let shown = { hex: "", base64: "" };
  let from = null;
  const write = () => { area.value = shown[kind.value]; done.textContent = ""; };
  const copy = async () => {
    try {
      await toClipboard(area.value);
      done.textContent = "Copied.";
    } catch {
      area.focus();
      area.select();
      done.textContent = "The browser copies nothing here: the text is selected, press Ctrl+C.";
    }
  };
  const close = () => { part.hidden = true; area.value = ""; shown = {}; from?.isConnected && from.focus(); };
  const title = h("strong");
  const part = h("div", { class: "dg-export", role: "group", "aria-label": "Descriptor", hidden: true }, title, what,
    h("div", { class: "dg-form" }, field("As", kind)), field("Descriptor", area),
    h("div", { class: "dg-bar" }, button("Copy", copy, { class: "dg-button dg-main" }), button("Close", close), done));
  kind.addEventListener("change", write);
  const open = async (region) => {
    from = document.activeElement;
    const reply = await view.attempt("export", { region: region.id });
    if (!reply) return;
    shown = reply;
    title.textContent = `Descriptor of ${reply.name}`;
    what.textContent = reply.what;
    part.hidden = false;
    write();
    await copy();
  };
  return { part, open };
}

function makeRegister(view, said) {
  const list = h("datalist", { id: dgId() });
  const c = {
    variable: h("input", { list: list.id, autocomplete: "off", spellcheck: "false" }),
    access: choice([["rw", "read and write"], ["r", "read"], ["w", "write"]]),
    name: h("input", { autocomplete: "off", placeholder: "the variable's" }),
    share: h("input", { type: "checkbox" }),
  };
  const found = h("p", { class: "dg-help", "aria-live": "polite" });
  const look = async () => {
    const reply = await view.call("variables").catch(view.fail);
    const names = reply?.variables ?? [];
    list.replaceChildren(...names.map((one) => h("option", { value: one.name }, `${one.text}${one.readonly ? ", read-only" : ""}`)));
    found.textContent = names.length ? `${names.length} variables of the notebook are memory.` : "No variable of the notebook is memory yet.";
  };
  const send = async (event) => {
    event.preventDefault();
    const variable = c.variable.value.trim();
    if (!mark(c.variable, variable ? "" : "the name of a variable")) return c.variable.focus();
    const fields = { variable, access: c.access.value, share_block: c.share.checked, name: c.name.value.trim() };
    try {
      await view.call("register", fields);
      view.clear();
      said.textContent = `Registering ${variable}…`;
    } catch (error) {
      showFieldError(view, c, error);
    }
  };
  const share = field("Share the whole block", c.share, "for arrays on a GPU that lie in a block with others");
  const form = h("form", { class: "dg-form", onsubmit: send, novalidate: true }, field("Variable", c.variable), list,
    field("Access", c.access), field("Name of the region", c.name), share,
    h("div", { class: "dg-wide dg-bar" }, button("Register", null, { type: "submit" }), found));
  c.variable.addEventListener("input", () => mark(c.variable));
  const part = h("details", {}, h("summary", {}, "Register a variable of the notebook"), form);
  part.addEventListener("toggle", () => part.open && look());
  c.variable.addEventListener("focus", look);
  return { part, controls: c };
}

// One line a job, made once and changed in place: its button is clicked while it fills.
function makeJobs(view) {
  const part = h("div");
  const lines = new Map();
  const line = (job) => {
    const bar = h("progress"), text = h("span");
    const cancel = button("Cancel", () => view.attempt("cancel", { job: job.id }));
    part.append(h("div", { class: "dg-bar" }, bar, text, cancel));
    return { bar, text, cancel };
  };
  const update = ({ bar, text, cancel }, { name, done, total }) => {
    bar.max = total || 1;
    if (total) bar.value = done;
    bar.setAttribute("aria-label", `Filling ${name}`);
    cancel.setAttribute("aria-label", `Cancel the fill of ${name}`);
    text.textContent = total ? `${name}: ${sizeText(done)} of ${sizeText(total)}` : `${name}: waiting for its pages`;
  };
  const draw = (jobs) => {
    const live = new Set(jobs.map((job) => job.id));
    for (const [id, { text }] of lines) if (!live.has(id)) { text.parentElement.remove(); lines.delete(id); }
    for (const job of jobs) {
      if (!lines.has(job.id)) lines.set(job.id, line(job));
      update(lines.get(job.id), job);
    }
  };
  return { part, draw };
}

function drawAllocate(view) {
  const said = statusLine();
  const why = h("div");
  const form = makeForm(view, said);
  const exported = makeExport(view);
  const regions = makeRegions(view, said, exported, form);
  const register = makeRegister(view, said);
  const jobs = makeJobs(view);
  const fields = h("fieldset", {}, form.form, register.part);
  const shown = (desk) => {
    fields.disabled = desk.closed;
    if (desk.closed) said.textContent = "The session is closed: run the cell that opens it again.";
    regions.draw(desk);
    view.titled({ title: view.state.title, ...desk });
  };
  view.body.append(fields, why, jobs.part, said, regions.part, exported.part);
  showPlaces(form.controls.on, why, view.state.places);
  jobs.draw(view.state.jobs);
  shown(view.state);
  view.on("session", ({ change, session }) => change !== "written" && shown(session));
  view.on("places", (message) => showPlaces(form.controls.on, why, message.places));
  view.on("jobs", (message) => jobs.draw(message.jobs));
  view.on("said", (message) => (said.textContent = message.text));
  view.on("failed", ({ error }) => {
    said.textContent = "";
    const control = { ...form.controls, ...register.controls }[error.field];
    if (control) mark(control, error.text);
  });
}

export default panel({ name: "allocate", draw: drawAllocate });
