import { h } from "../base/elements.js";
import { panel } from "../base/panel.js";
import { renderFigures } from "./bokehjs.js";

export default panel({
  name: "figure",
  draw(view) {
    const { alt, roots } = view.state;
    view.head.hidden = true;
    view.root.setAttribute("aria-label", alt ? `Figure: ${alt}` : "Figure");
    const places = roots.map(() => h("div", { class: "dg-figure" }));
    const note = h("p", { class: "dg-help", role: "status" }, "Drawing…");
    view.body.append(note, ...places);
    renderFigures(
      view,
      (content) => content.roots().map((root) => places[roots.indexOf(root.id)]),
      () => {
        note.remove();
        view.root.dataset.drawn = "";
      },
    );
  },
});
