// AllocatePanel: the form, running fills, the live regions, a descriptor, the notebook's variables.

import { button, choice, field, h, newId, statusLine } from "../base/elements.js";
import { mark, patternFields, replaceRows, showFieldError, tableOf } from "../base/forms.js";
import { toClipboard } from "../base/page.js";
import { panel, pythonButton } from "../base/panel.js";
import { parseShape, sizeText } from "../base/units.js";

function memoryControls(view) {
  return {
    name: h("input", { autocomplete: "off", placeholder: "optional" }),
    shape: h("input", { value: "1M", autocomplete: "off", spellcheck: "false" }),
    dtype: choice(view.state.dtypes),
    on: h("select"),
  };
}

// Marks invalid fields and shows the size in bytes.
function checkMemory(c, pattern, size) {
  const lengths = parseShape(c.shape.value);
  const valid = mark(c.shape, lengths ? "" : "lengths such as 1024, 1024 or 4096 or 1M");
  const bytes = (lengths ?? []).reduce((product, length) => product * length, Number(c.dtype.value.slice(1)));
  size.textContent = valid ? `= ${sizeText(bytes)}` : "";
  mark(pattern.value, pattern.error());
  mark(c.on);
}

async function sendMemory(view, c, pattern, status) {
  const fields = { shape: c.shape.value, dtype: c.dtype.value, on: c.on.value, name: c.name.value.trim() };
  view.clear(); // first: the work that the call starts may report an error before the reply
  status.textContent = "Allocating…";
  try {
    await view.call("make", { ...fields, fill: pattern.text() });
    c.name.value = ""; // a name is for a single region
  } catch (error) {
    status.textContent = "";
    showFieldError(view, { ...c, fill: pattern.control() }, error);
  }
}

function makeForm(view, status) {
  const c = memoryControls(view);
  const size = h("output", { class: "dg-size", "aria-live": "polite" });
  const pattern = patternFields(view.state.fills, view.state.fills[0][0]);
  const submit = button("Allocate", null, { class: "dg-button dg-main", type: "submit" });
  const check = () => checkMemory(c, pattern, size);
  const send = (event) => {
    event.preventDefault();
    check();
    const invalid = form.querySelector('[aria-invalid="true"]');
    if (invalid) invalid.focus();
    else sendMemory(view, c, pattern, status);
  };
  const form = h(
    "form",
    { class: "dg-form", onsubmit: send, oninput: check, novalidate: true },
    field("Name", c.name),
    field("Shape, items", c.shape),
    field("dtype", c.dtype),
    field("Location", c.on),
    field("Fill pattern", pattern.kind),
    pattern.valueBox,
    h("div", { class: "dg-wide dg-bar" }, submit, size),
  );
  pattern.kind.addEventListener("change", check); // after its value has changed
  check();
  return { form, controls: { ...c, fill: pattern.kind }, submit };
}

// The places for memory; unavailable ones are listed but disabled, with the reason.
function showPlaces(select, why, places) {
  const before = select.value || "host";
  select.replaceChildren(
    ...places.map((place) =>
      h(
        "option",
        { value: place.value, disabled: Boolean(place.why), title: place.why },
        place.why ? `${place.text} (unavailable)` : place.text,
      ),
    ),
  );
  select.value = before;
  if (!select.value) select.value = "host";
  const reasons = [...new Set(places.map((place) => place.why).filter(Boolean))];
  why.replaceChildren(...reasons.map((text) => h("p", { class: "dg-help" }, `GPU memory is unavailable: ${text}`)));
}

function makeRegions(view, status, exported, form) {
  const headers = ["Name", ">Size", "Items", "Location", "Access", "Actions"];
  const { table, body, box } = tableOf("Live regions", headers);
  const none = h("p", { class: "dg-help" }, "No regions yet: allocate memory, or register a variable.");
  let confirming = 0;
  const free = async (region, sure) => {
    const reply = await view.attempt("free", { region: region.id, sure });
    confirming = reply?.in_use ? region.id : 0;
    if (reply?.in_use) status.textContent = `${reply.in_use}. Freeing the region now ends that.`;
    draw(view.session);
  };
  const confirmation = (region) => [
    button(
      "Keep",
      () => {
        confirming = 0;
        status.textContent = "";
        draw(view.session);
      },
      { "data-key": `free:${region.id}` },
    ),
    button("Free anyway", () => free(region, true), { "data-key": `sure:${region.id}` }),
  ];
  const actions = (region, selected) => [
    button("Select", () => view.attempt("select", { region: region.id }), {
      "aria-pressed": String(region.id === selected),
      "aria-label": `Select ${region.name}`,
      "data-key": `select:${region.id}`,
    }),
    button("Export", () => exported.open(region), {
      "aria-label": `Export ${region.name}`,
      title: region.exported ? "Show its descriptor" : "It has no descriptor",
      "data-key": `export:${region.id}`,
    }),
    pythonButton(
      view,
      (text) => (status.textContent = text),
      () => ({ region: region.id }),
      {
        text: "Python",
        title: "Copy as Python",
        "aria-label": `Copy as Python: ${region.name}`,
        "data-key": `python:${region.id}`,
      },
    ),
    ...(confirming === region.id
      ? confirmation(region)
      : [
          button("Free", () => free(region, false), {
            "aria-label": `Free ${region.name}`,
            "data-key": `free:${region.id}`,
          }),
        ]),
  ];
  const line = (region, selected) =>
    h(
      "tr",
      { "data-row": region.id, class: region.id === selected ? "dg-row-chosen" : false },
      h("th", { scope: "row", title: region.chosen || null }, region.name),
      h("td", { class: "dg-number", title: `${region.size.toLocaleString("en-US")} bytes` }, region.text),
      h(
        "td",
        {},
        region.local
          ? `${region.shape.map((length) => length.toLocaleString("en-US")).join(" × ")} ${region.dtype}`
          : "bytes, at the agent",
      ),
      h("td", {}, region.where),
      h("td", { title: region.access_text }, region.access),
      h("td", {}, ...actions(region, selected)),
    );
  const draw = (session) => {
    view.session = session;
    replaceRows(
      body,
      session.regions.map((region) => line(region, session.selected)),
      form.submit,
    );
    none.hidden = session.regions.length > 0;
    box.hidden = !none.hidden;
    table.caption.textContent =
      session.count > session.regions.length
        ? `Live regions: the newest ${session.regions.length} of ${session.count.toLocaleString("en-US")}`
        : "Live regions";
  };
  return { part: h("div", {}, none, box), draw };
}

function makeExport(view) {
  const area = h("textarea", { rows: 4, readonly: true, spellcheck: "false" });
  const kind = choice([
    ["hex", "hex"],
    ["base64", "base64"],
  ]);
  const what = h("p", { class: "dg-help" });
  const status = statusLine();
  let descriptor = { hex: "", base64: "" };
  let opener = null;
  const write = () => {
    area.value = descriptor[kind.value];
    status.textContent = "";
  };
  const copy = async () => {
    try {
      await toClipboard(area.value);
      status.textContent = "Copied.";
    } catch {
      area.focus();
      area.select();
      status.textContent = "The browser denied access to the clipboard. The text is selected: press Ctrl+C.";
    }
  };
  const close = () => {
    part.hidden = true;
    area.value = "";
    descriptor = { hex: "", base64: "" };
    opener?.isConnected && opener.focus();
  };
  const title = h("strong");
  const part = h(
    "div",
    { class: "dg-export", role: "group", "aria-label": "Descriptor", hidden: true },
    title,
    what,
    h("div", { class: "dg-form" }, field("Format", kind)),
    field("Descriptor", area),
    h("div", { class: "dg-bar" }, button("Copy", copy, { class: "dg-button dg-main" }), button("Close", close), status),
  );
  kind.addEventListener("change", write);
  const open = async (region) => {
    opener = document.activeElement;
    const reply = await view.attempt("export", { region: region.id });
    if (!reply) return;
    descriptor = reply;
    title.textContent = `Descriptor of ${reply.name}`;
    what.textContent = reply.what;
    part.hidden = false;
    write();
    await copy();
  };
  return { part, open };
}

function makeRegister(view, status) {
  const list = h("datalist", { id: newId() });
  const c = {
    variable: h("input", { list: list.id, autocomplete: "off", spellcheck: "false" }),
    access: choice([
      ["", "all that it allows"],
      ["rw", "read and write"],
      ["r", "read"],
      ["w", "write"],
    ]),
    name: h("input", { autocomplete: "off", placeholder: "same as the variable" }),
    share: h("input", { type: "checkbox" }),
  };
  const found = h("p", { class: "dg-help", "aria-live": "polite" });
  const listVariables = async () => {
    const reply = await view.call("variables").catch(view.fail);
    const names = reply?.variables ?? [];
    list.replaceChildren(
      ...names.map((item) => h("option", { value: item.name }, `${item.text}${item.readonly ? ", read-only" : ""}`)),
    );
    found.textContent = names.length
      ? `Notebook variables that can be registered: ${names.length}.`
      : "No notebook variable can be registered yet.";
  };
  const send = async (event) => {
    event.preventDefault();
    const variable = c.variable.value.trim();
    if (!mark(c.variable, variable ? "" : "enter the name of a variable")) return c.variable.focus();
    const fields = { variable, access: c.access.value, share_block: c.share.checked, name: c.name.value.trim() };
    view.clear();
    status.textContent = `Registering ${variable}…`;
    try {
      await view.call("register", fields);
    } catch (error) {
      status.textContent = "";
      showFieldError(view, c, error);
    }
  };
  const share = field("Share the whole block", c.share, "for GPU arrays that share an allocation with others");
  const form = h(
    "form",
    { class: "dg-form", onsubmit: send, novalidate: true },
    field("Variable", c.variable),
    list,
    field("Access", c.access),
    field("Name of the region", c.name),
    share,
    h("div", { class: "dg-wide dg-bar" }, button("Register", null, { type: "submit" }), found),
  );
  c.variable.addEventListener("input", () => mark(c.variable));
  const part = h("details", {}, h("summary", {}, "Register a variable of the notebook"), form);
  part.addEventListener("toggle", () => part.open && listVariables());
  c.variable.addEventListener("focus", listVariables);
  return { part, controls: c };
}

// One line per job, created once and updated in place, so that its button stays clickable.
function makeJobs(view) {
  const part = h("div");
  const lines = new Map();
  const line = (job) => {
    const bar = h("progress");
    const text = h("span");
    const cancel = button("Cancel", () => view.attempt("cancel", { job: job.id }));
    part.append(h("div", { class: "dg-bar" }, bar, text, cancel));
    return { bar, text, cancel };
  };
  const update = ({ bar, text, cancel }, { name, done, total }) => {
    bar.max = total || 1;
    if (total) bar.value = done;
    bar.setAttribute("aria-label", `Filling ${name}`);
    cancel.setAttribute("aria-label", `Cancel the fill of ${name}`);
    text.textContent = total
      ? `${name}: ${sizeText(done)} of ${sizeText(total)}`
      : `${name}: waiting for its memory pages`;
  };
  const draw = (jobs) => {
    const live = new Set(jobs.map((job) => job.id));
    for (const [id, { text }] of lines)
      if (!live.has(id)) {
        text.parentElement.remove();
        lines.delete(id);
      }
    for (const job of jobs) {
      if (!lines.has(job.id)) lines.set(job.id, line(job));
      update(lines.get(job.id), job);
    }
  };
  return { part, draw };
}

function draw(view) {
  const status = statusLine();
  const why = h("div");
  const form = makeForm(view, status);
  const exported = makeExport(view);
  const regions = makeRegions(view, status, exported, form);
  const register = makeRegister(view, status);
  const jobs = makeJobs(view);
  const fields = h("fieldset", {}, form.form, register.part);
  const showSession = (session) => {
    fields.disabled = session.closed;
    if (session.closed) status.textContent = "The session is closed: run the cell that opens it again.";
    regions.draw(session);
    view.titled({ title: view.state.title, ...session });
  };
  view.body.append(fields, why, jobs.part, status, regions.part, exported.part);
  showPlaces(form.controls.on, why, view.state.places);
  jobs.draw(view.state.jobs);
  showSession(view.state);
  view.on("session", ({ change, session }) => change !== "written" && showSession(session));
  view.on("places", (message) => showPlaces(form.controls.on, why, message.places));
  view.on("jobs", (message) => jobs.draw(message.jobs));
  view.on("status", (message) => (status.textContent = message.text));
  view.on("failed", ({ error }) => {
    status.textContent = "";
    const control = { ...form.controls, ...register.controls }[error.field];
    if (control) mark(control, error.text);
  });
}

export const allocate = panel({ name: "allocate", draw });
export default allocate;
