// TransferPanel: the form, the list of transfers, what runs, and the completions.

const stateWords = { waiting: "waiting", running: "running", done: "done", failed: "failed", cancelled: "cancelled" };

function makeList(view, form) {
  const headers = ["Operation", "Region", ">Offset", ">Size", "Payload", ">Repeat", ">Depth", "State", "Actions"];
  const { body, box } = tableOf("Sequence: run from the top, up to the first failure", headers);
  const all = button("Run all", () => view.attempt("run"), { class: "dg-button dg-main" });
  const part = h("div", { hidden: true }, box, h("div", { class: "dg-bar" }, all));
  const act = (order, key, text, label, call, disabled = false) => button(text, call, {
    "aria-label": `${label}: ${order.op} ${order.region}`, title: label, "data-key": `${key}:${order.id}`, disabled });
  const line = (order, at, orders) => h("tr", { "data-row": order.id },
    h("th", { scope: "row" }, order.op), h("td", {}, order.region + (order.freed ? " (freed)" : "")),
    h("td", { class: "dg-number" }, order.offset.toLocaleString("en-US")), h("td", { class: "dg-number" }, order.text),
    h("td", { class: "dg-cut", title: order.payload }, order.payload), h("td", { class: "dg-number" }, String(order.repeat)),
    h("td", { class: "dg-number" }, String(order.depth)), h("td", {}, stateWords[order.state] + (order.done && order.state !== "done" ? `, ${order.done} done` : "")),
    h("td", {}, act(order, "up", "↑", "Move up", () => view.attempt("move", { order: order.id, by: -1 }), at === 0),
      act(order, "down", "↓", "Move down", () => view.attempt("move", { order: order.id, by: 1 }), at === orders.length - 1),
      act(order, "remove", "Remove", "Remove", () => view.attempt("remove", { order: order.id }))));
  const draw = (orders) => {
    part.hidden = orders.length === 0;
    if (part.hidden && body.contains(document.activeElement)) form.add.focus();
    rows(body, orders.map(line), all);
  };
  return { part, draw, all };
}

function makeProgress(view, said, busy) {
  const bar = h("progress", { max: 1, "aria-label": "Transfers" });
  const text = h("span");
  const cancel = button("Cancel", () => view.attempt("cancel"));
  const part = h("div", { class: "dg-bar", hidden: true }, bar, text, cancel);
  const draw = (run, ended) => {
    busy(Boolean(run));
    if (!run && part.contains(document.activeElement)) view.form.start.focus();
    part.hidden = !run;
    if (ended) said.textContent = ended;
    if (!run) return;
    if (part.dataset.order !== String(run.order)) said.textContent = "";
    part.dataset.order = run.order;
    bar.value = run.fraction;
    cancel.disabled = run.stopping;
    const many = run.repeat > 1 ? `, ${run.done.toLocaleString("en-US")} of ${run.repeat.toLocaleString("en-US")}` : "";
    const step = run.of > 1 ? `${run.index + 1} of ${run.of}: ` : "";
    const silent = run.silent_s >= 2 ? `, no news from the DPU for ${Math.round(run.silent_s)} s` : "";
    text.textContent = `${step}${run.what}${many}, ${Math.floor(100 * run.fraction)} %${run.stopping ? ", ending" : ""}${silent}`;
  };
  return { part, draw };
}

// Submit, post and complete of one DMA as two boxes, each as long as it took.
function timelineOf(record) {
  if (record.complete_ns === undefined) return record.error ?? "";
  const { post_ns: post, complete_ns: complete } = record;
  const words = `0 → ${micros(post)} → ${micros(complete)}`;
  const box = (name, ns) => h("span", { class: `dg-span ${name}`, style: `flex:${Math.max(ns, 0)} 1 0` });
  return h("div", { class: "dg-times" },
    h("div", { class: "dg-line", "aria-hidden": "true" }, box("dg-posting", post), box("dg-moving", complete - post)),
    h("span", { title: `submit at ${record.submit_ns} ns` }, words));
}

function makeCompletions() {
  const headers = [">No.", "Transfer", "Status", ">Size", "Path", "Last DMA: submit → post → complete, us", ">READs, us", ">WRITEs, us", ">Pieces"];
  const { table, body, box } = tableOf("Completions, the newest first", headers);
  const clock = h("p", { class: "dg-help" });
  const part = h("div", { hidden: true }, box, clock);
  const time = (ns) => (ns === undefined ? "" : micros(ns));
  const line = (one) => h("tr", { class: one.status === "OK" ? false : "dg-bad" },
    h("td", { class: "dg-number" }, String(one.number)), h("th", { scope: "row" }, `${one.what} +${one.offset.toLocaleString("en-US")}`),
    h("td", { title: one.error ?? null }, one.status), h("td", { class: "dg-number" }, one.size.toLocaleString("en-US")),
    h("td", {}, one.path ?? ""), h("td", {}, one.dma ? h("span", { class: "dg-dma" }, one.dma) : null, timelineOf(one)),
    h("td", { class: "dg-number" }, time(one.read_ns)), h("td", { class: "dg-number" }, time(one.write_ns)),
    h("td", { class: "dg-number" }, String(one.chunks ?? "")));
  const draw = ({ completions, clock: whose }) => {
    part.hidden = completions.length === 0;
    body.replaceChildren(...completions.map(line).reverse());
    const { submit_ns: at } = completions.findLast((one) => one.submit_ns) ?? {};
    clock.textContent = `Times: ${whose}${at ? `; the newest DMA was submitted at ${(Number(at) / 1e9).toFixed(6)} s of it` : ""}. The bar has its own scale: ` +
      "orange is submit to post, blue post to complete. Data of this process takes two DMAs a piece: a READ from one side and a WRITE to the other.";
  };
  table.classList.add("dg-completions");
  return { part, draw };
}

function makeSummary() {
  const { table, body, box } = tableOf("", ["us, from the completions' stamps", ">min", ">median", ">max"]);
  box.hidden = true;
  box.classList.add("dg-summary");
  const draw = (summary) => {
    box.hidden = !summary;
    if (!summary) return;
    table.caption.textContent = `${summary.what}: ${summary.count.toLocaleString("en-US")} transfers, ${sizeText(summary.bytes)}`;
    body.replaceChildren(...summary.rows.map(([what, ...ns]) => h("tr", {}, h("th", { scope: "row" }, what),
      ...ns.map((one) => h("td", { class: "dg-number" }, micros(one))))));
  };
  return { part: box, draw };
}

function makeBrought(view, said) {
  const title = h("strong");
  const lines = h("pre", { class: "dg-mono dg-bytes", tabindex: 0, "aria-label": "The first bytes that the read brought" });
  const name = h("input", { value: "data", autocomplete: "off", spellcheck: "false" });
  const keep = async (event) => {
    event.preventDefault();
    try {
      const reply = await view.call("keep", { name: name.value.trim() });
      mark(name);
      view.clear();
      said.textContent = reply.text;
    } catch (error) {
      showFieldError(view, { keep: name }, error);
    }
  };
  const form = h("form", { class: "dg-bar dg-keep", onsubmit: keep, oninput: () => mark(name), novalidate: true },
    field("Keep as variable", name), button("Keep", null, { type: "submit" }), button("Forget", () => view.attempt("forget")));
  const held = h("p", { class: "dg-help" });
  const part = h("div", { hidden: true }, title, lines, form, held);
  const draw = (brought) => {
    part.hidden = !brought;
    if (!brought) return;
    form.hidden = !brought.whole;
    held.textContent = brought.whole
      ? `The kernel holds all ${sizeText(brought.size)} until they are kept or forgotten, or the next read is complete.`
      : "The panel holds only the bytes that are shown: to keep all of them, read them again.";
    if (part.dataset.number === String(brought.number)) return;
    part.dataset.number = brought.number;
    const rest = brought.size > 16 * brought.lines.length ? `, the first ${16 * brought.lines.length} of them` : "";
    title.textContent = `No. ${brought.number}, ${brought.what}: ${sizeText(brought.size)}${rest}`;
    lines.textContent = brought.lines.join("\n");
  };
  return { part, draw };
}

function drawTransfer(view) {
  view.session = view.state;
  const said = statusLine();
  const form = (view.form = makeTransferForm(view, (text) => (said.textContent = text)));
  const list = makeList(view, form);
  const busy = (running) => {
    view.running = list.all.disabled = running;
    form.start.disabled = running || !view.session.regions.length;
  };
  const progress = makeProgress(view, said, busy);
  const summary = makeSummary();
  const brought = makeBrought(view, said);
  const completions = makeCompletions();
  const fields = h("fieldset", {}, form.form, list.part);
  view.body.append(fields, progress.part, said, summary.part, brought.part, completions.part);
  const showSession = (state, select) => {
    view.session = state;
    fields.disabled = state.closed;
    if (state.closed) said.textContent = "The session is closed: run the cell that opens it again.";
    form.regions(state, select);
    view.titled({ title: view.state.title, ...state });
  };
  const results = (message) => {
    completions.draw(message);
    summary.draw(message.summary);
    brought.draw(message.brought);
  };
  showSession(view.state, true);
  list.draw(view.state.orders);
  progress.draw(view.state.run, "");
  results(view.state);
  view.on("session", ({ change, session }) => change !== "written" && showSession(session, change === "select"));
  view.on("orders", (message) => list.draw(message.orders));
  view.on("run", (message) => progress.draw(message.run, message.ended));
  view.on("results", results);
}

export default panel({ name: "transfer", draw: drawTransfer });
