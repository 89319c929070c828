// Kept runs in the notebook's metadata: `runs` has a record of each by name.

import { notebookMetadata } from "../base/page.js";

// Returns update(state), which writes what was kept and removes what was dropped since the last
// state, and recall(), which has the kernel take the runs that it does not have yet.
export function notebookRuns(view) {
  const notebook = notebookMetadata(view);
  const idOf = (name) => notebook.read("runs")?.[name]?.id ?? null;
  let seen = {};
  const update = async ({ kept }) => {
    const names = Object.keys(kept).filter((name) => kept[name] !== seen[name] && kept[name] !== idOf(name));
    seen = kept;
    if (!names.length) return;
    const reply = await view.call("stored", { names });
    const runs = { ...notebook.read("runs") };
    for (const name of names) delete runs[name];
    notebook.write("runs", { ...runs, ...reply.runs });
  };
  const recall = () => {
    const runs = Object.entries(notebook.read("runs") ?? {}).filter(([name]) => !(name in view.state.kept));
    if (runs.length) view.call("recall", { runs: Object.fromEntries(runs) }).catch(view.fail);
  };
  return { update: (state) => update(state).catch(view.fail), recall };
}
