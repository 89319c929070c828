// The PCIe tree: which two devices, the figure, and the answer in words.

function makeTree(view) {
  const gpu = h("select"), nic = h("select");
  const legend = h("div", { class: "dg-row" }, field("GPU", gpu), field("NIC or DPU", nic));
  const box = h("div", { class: "dg-tree", tabindex: 0, role: "region", "aria-label": "Drawing of the PCIe tree" });
  const place = h("div", { class: "dg-figure", "aria-hidden": "true" });
  const answer = h("p", { class: "dg-answer", "aria-live": "polite" });
  const alt = h("p", { class: "dg-help" });
  const part = h("details", { open: true, hidden: true }, h("summary", {}, "PCIe topology"), legend, answer, box, alt);
  box.append(place);
  let drawn = "", figures = null, busy = Promise.resolve(), seen = false, now = null;
  const choose = () => view.attempt("pair", { gpu: gpu.value, nic: nic.value });
  for (const control of [gpu, nic]) control.addEventListener("change", choose);

  const figure = () => (busy = busy.then(async () => {
    const wanted = now && `${now.pair} ${isDark()}`;
    if (!wanted || !seen || wanted === drawn || view.live.aborted) return;
    drawn = wanted;
    const height = place.offsetHeight; // what is below stays where it is
    place.style.minHeight = `${height}px`;
    const made = await drawFigures(view, (document) => document.roots().map(() => place));
    figures?.remove();
    figures = made;
    place.style.minHeight = "";
    view.root.dataset.drawn = now.pair ? now.pair.join(" ") : "";
  }).catch((error) => { drawn = ""; view.fail(error); }));

  const draw = (picture) => {
    now = picture;
    part.hidden = !picture;
    if (!picture) return;
    setOptions(gpu, picture.gpus, picture.pair?.[0]);
    setOptions(nic, picture.nics, picture.pair?.[1]);
    legend.hidden = !picture.pair;
    answer.textContent = picture.answer;
    alt.textContent = picture.alt;
    figure();
  };
  onTheme(figure, view.signal);
  onVisible(box, (visible) => { seen = visible; figure(); }, view.signal);
  view.signal.addEventListener("abort", () => busy.then(() => figures?.remove()));
  return { part, draw };
}
