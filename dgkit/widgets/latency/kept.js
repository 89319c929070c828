// Kept runs in the notebook's metadata: `runs` has a record of each by name.

import { notebookMetadata } from "../base/page.js";

const NAME_LENGTH = 36; // and a number: names of runs have at most 40 letters

const idsOf = (runs) => new Set(Object.values(runs).map((run) => run?.id));

function freeName(runs, name) {
  const short = [...name].slice(0, NAME_LENGTH).join("");
  for (let n = 1; ; n++) {
    const free = n === 1 ? name : `${short} ${n}`;
    if (!(free in runs)) return free;
  }
}

// Returns the notebook's runs without those in `gone` (ids), and with a plot's `records` (by name):
// a name that a run of another plot has gets a number.
export function mergedRuns(runs, gone, records) {
  const merged = Object.fromEntries(Object.entries(runs).filter(([, run]) => !gone.includes(run?.id)));
  const ids = idsOf(merged);
  for (const [name, record] of Object.entries(records)) {
    if (!ids.has(record.id)) merged[freeName(merged, name)] = record;
  }
  return merged;
}

// Returns update(state), which writes what was kept and removes what was replaced or dropped since
// the last state, and recall(), which has the kernel take the runs that it does not have yet.
export function notebookRuns(view) {
  const notebook = notebookMetadata(view);
  const runs = () => notebook.read("runs") ?? {};
  let seen = {};
  const update = async ({ kept, gone }) => {
    const ids = idsOf(runs());
    const names = Object.keys(kept).filter((name) => kept[name] !== seen[name] && !ids.has(kept[name]));
    seen = kept;
    if (!names.length && !gone.some((id) => ids.has(id))) return;
    const records = names.length ? (await view.call("stored", { names })).runs : {};
    notebook.write("runs", mergedRuns(runs(), gone, records));
  };
  const recall = () => {
    const { kept, gone } = view.state;
    const known = new Set([...Object.values(kept), ...gone]);
    const found = Object.entries(runs()).filter(([name, run]) => !(name in kept) && !known.has(run?.id));
    if (found.length) view.call("recall", { runs: Object.fromEntries(found) }).catch(view.fail);
  };
  return { update: (state) => update(state).catch(view.fail), recall };
}
