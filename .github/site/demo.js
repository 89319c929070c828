// Plays a recorded session of the dashboard (tests/browser/recording.py) to its panels: they get
// the messages of the kernel at the times at which they came, and the recorded replies.

const SMALLEST = 0.6; // zoom; below it the page scrolls
const SLACK_S = 0.5; // a panel may ask a little earlier than it did
// What a call asks for, where that changes the reply: not the view, whose name is new in each page.
const ANSWERED = { fetch: ["at"] };
for (const call of ["hello", "watch", "visible", "bokehjs", "figures", "overview", "draw_image", "set_selection"])
  ANSWERED[call] = [];
const REFUSED = {
  kind: "Recorded",
  text: "This page plays a recording: no kernel answers it",
  hint: "The command of the page Start runs the same dashboard on your machine.",
  field: "",
  restart: "",
};

async function unpack(base64) {
  const packed = Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
  const text = new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  return JSON.parse(await text);
}

const bytesOf = (base64) => new DataView(Uint8Array.from(atob(base64), (each) => each.charCodeAt(0)).buffer);

// A model of anywidget whose kernel is the recording.
class RecordedModel {
  #handlers = new Map();
  #replies = [];
  #clock;
  constructor(messages, clock, manager) {
    this.#clock = clock;
    this.widget_manager = manager;
    const asked = new Map();
    for (const [at, , way, content, data] of messages)
      if (way === "to") asked.set(content.id, content);
      else if (content.kind === "reply" && asked.has(content.id))
        this.#replies.push({ at, ...asked.get(content.id), content, data });
  }
  get() {}
  on(event, handler) {
    this.#handlers.set(event, [...(this.#handlers.get(event) ?? []), handler]);
  }
  off(event, handler) {
    const left = (this.#handlers.get(event) ?? []).filter((each) => each !== handler);
    this.#handlers.set(event, left);
  }
  receive(content, data) {
    for (const handler of this.#handlers.get("msg:custom") ?? []) handler(content, data.map(bytesOf));
  }
  // Answers a call with the newest reply to the same one that the recording had by now.
  send({ id, call, fields }) {
    const alike = (each) => each.call === call && ANSWERED[call]?.every((name) => each.fields[name] === fields[name]);
    const same = this.#replies.filter(alike);
    const found = same.findLast(({ at }) => at <= this.#clock() + SLACK_S) ?? same[0];
    const [content, data] = found ? [found.content, found.data] : [{ kind: "reply", error: REFUSED }, []];
    setTimeout(() => this.receive({ ...content, id }, data));
  }
}

async function play() {
  const { dashboard, messages, width } = await unpack(window.dgkitRecording);
  const first = messages[0][0];
  const began = performance.now();
  const clock = () => first + (performance.now() - began) / 1000;
  const models = new Map();
  const manager = { get_model: async (id) => models.get(id) };
  for (const id of new Set(messages.map((each) => each[1])))
    models.set(
      id,
      new RecordedModel(
        messages.filter((each) => each[1] === id),
        clock,
        manager,
      ),
    );
  const el = document.getElementById("dashboard");
  el.style.width = `${width}px`;
  document.body.style.zoom = Math.min(1, Math.max(SMALLEST, window.innerWidth / width));
  const { bokeh } = messages.find(({ 3: content }) => content.value?.bokeh)[3].value;
  window.Bokeh[bokeh] = window.Bokeh; // that of the site may be newer
  const parts = new Map(window.dgkitBokehParts.map((name) => [`${bokeh}/${name}`, { done: true }]));
  window.__dgkitBokeh = { requested: Number.NEGATIVE_INFINITY, loading: parts };
  await window.dgkitDashboard().render({ model: models.get(dashboard), el });
  for (const [at, id, way, content, data] of messages)
    if (way === "from" && content.kind !== "reply")
      setTimeout(() => models.get(id).receive(content, data), 1000 * (at - clock()));
  const again = document.getElementById("again");
  setTimeout(() => (again.textContent = "Play again"), 1000 * (messages.at(-1)[0] - clock()));
  again.addEventListener("click", () => location.reload());
}

play();
