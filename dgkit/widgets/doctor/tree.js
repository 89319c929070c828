// The PCIe tree: the two devices, the drawing, and the answer in words.

import { field, h, setOptions } from "../base/elements.js";
import { isDark, onTheme, onVisible } from "../base/page.js";
import { drawFigures } from "../figure/bokehjs.js";

export function makeTree(view) {
  const gpu = h("select");
  const nic = h("select");
  const legend = h("div", { class: "dg-row" }, field("GPU", gpu), field("NIC or DPU", nic));
  const box = h("div", { class: "dg-tree", tabindex: 0, role: "region", "aria-label": "Drawing of the PCIe tree" });
  const place = h("div", { class: "dg-figure", "aria-hidden": "true" });
  const answer = h("p", { class: "dg-answer", "aria-live": "polite" });
  const alt = h("p", { class: "dg-help" });
  const part = h("details", { open: true, hidden: true }, h("summary", {}, "PCIe topology"), legend, answer, box, alt);
  box.append(place);
  let drawn = "";
  let figures = null;
  let busy = Promise.resolve();
  let seen = false;
  let current = null;
  const choose = () => view.attempt("pair", { gpu: gpu.value, nic: nic.value });
  for (const control of [gpu, nic]) control.addEventListener("change", choose);

  const figure = () =>
    (busy = busy
      .then(async () => {
        const wanted = current && `${current.pair} ${isDark()}`;
        if (!wanted || !seen || wanted === drawn || view.live.aborted) return;
        drawn = wanted;
        const height = place.offsetHeight; // so that the elements below do not move
        place.style.minHeight = `${height}px`;
        const made = await drawFigures(view, (document) => document.roots().map(() => place));
        figures?.remove();
        figures = made;
        place.style.minHeight = "";
        view.root.dataset.drawn = current.pair ? current.pair.join(" ") : "";
      })
      .catch((error) => {
        drawn = "";
        view.fail(error);
      }));

  const draw = (topology) => {
    current = topology;
    part.hidden = !topology;
    if (!topology) return;
    setOptions(gpu, topology.gpus, topology.pair?.[0]);
    setOptions(nic, topology.nics, topology.pair?.[1]);
    legend.hidden = !topology.pair;
    answer.textContent = topology.answer;
    alt.textContent = topology.alt;
    figure();
  };
  onTheme(figure, view.signal);
  onVisible(
    box,
    (visible) => {
      seen = visible;
      figure();
    },
    view.signal,
  );
  view.signal.addEventListener("abort", () => busy.then(() => figures?.remove()));
  return { part, draw };
}
