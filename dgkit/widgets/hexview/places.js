// Bookmarks of the region, and going back to where the cursor was before a jump.

import { button, choice, h, setOptions } from "../base/elements.js";
import { plural } from "../base/units.js";
import { hexOffset } from "./values.js";

const MAX_JUMPS = 100;

export class Places {
  #left = [];
  constructor(view, grid) {
    this.view = view;
    this.grid = grid;
    this.back = button("Back", () => this.goBack(), {
      disabled: true,
      title: "To where the cursor was before the last jump: Alt+Left",
    });
    this.list = choice([["", "Bookmarks"]], { "aria-label": "Go to bookmark", onchange: () => this.#go() });
    this.name = h("input", {
      size: 10,
      maxlength: 64,
      autocomplete: "off",
      spellcheck: "false",
      placeholder: "name",
      "aria-label": "Name of the bookmark",
      onkeydown: (event) => event.key === "Enter" && this.#add(),
    });
    this.add = button("Bookmark", () => this.#add(), { title: "Bookmark the selection" });
    this.remove = button("Remove", () => this.#remove(), { "aria-label": "Remove bookmark" });
    this.row = h("div", { class: "dg-join" }, this.back, this.list, this.remove, this.name, this.add);
    grid.leave = () => this.leave();
    grid.box.addEventListener(
      "keydown",
      (event) => {
        if (!event.altKey || event.key !== "ArrowLeft") return;
        event.preventDefault();
        event.stopImmediatePropagation();
        this.goBack();
      },
      { capture: true },
    );
  }
  apply(state) {
    const { bookmarks, region } = state;
    if (region?.id !== this.region) this.#left = [];
    this.region = region?.id;
    const chosen = this.list.value;
    setOptions(
      this.list,
      [
        ["", bookmarks.length ? `${plural(bookmarks.length, "bookmark")}` : "no bookmarks"],
        ...bookmarks.map(([name, start]) => [
          name,
          `${name}${name === hexOffset(start) ? "" : `, ${hexOffset(start)}`}`,
        ]),
      ],
      chosen,
    );
    this.list.disabled = !bookmarks.length;
    this.#buttons();
  }
  #buttons() {
    this.remove.hidden = !this.list.value;
    this.back.disabled = !this.#left.length;
  }
  // Remembers the selection and the first row, before a jump.
  leave() {
    if (!this.grid.layout) return;
    const { span } = this.grid.cursor;
    const [top] = this.grid.window;
    if (this.#left.at(-1)?.span.join() === span.join()) this.#left.pop();
    this.#left.push({ span, top });
    this.#left.splice(0, this.#left.length - MAX_JUMPS);
    this.#buttons();
  }
  goBack() {
    const last = this.#left.pop();
    this.#buttons();
    if (!last) return;
    this.grid.scrollTo(last.top);
    this.grid.cursor.select(...last.span);
    this.grid.setStatus(`Back at ${hexOffset(last.span[0])}.`);
  }
  #go() {
    const found = this.view.state.bookmarks.find(([name]) => name === this.list.value);
    this.#buttons();
    if (!found) return;
    const [, start, stop] = found;
    this.grid.choose(start, stop);
  }
  async #add() {
    const [start, stop] = this.grid.cursor.span;
    const reply = await this.view.attempt("bookmark", { start, stop, name: this.name.value });
    if (!reply) return;
    this.name.value = "";
    this.grid.setStatus(`Bookmarked as ${reply.name}.`);
  }
  #remove() {
    const name = this.list.value;
    this.view.attempt("remove_bookmark", { name });
  }
}
