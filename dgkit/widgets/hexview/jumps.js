// Going back to where the cursor was before a jump.

import { button } from "../base/elements.js";
import { hexOffset } from "./values.js";

const MAX_JUMPS = 100;

export class Jumps {
  #left = [];
  constructor(grid) {
    this.grid = grid;
    this.back = button("Back", () => this.goBack(), {
      disabled: true,
      title: "To where the cursor was before the last jump: Alt+Left",
    });
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
  apply({ region }) {
    if (region?.id !== this.region) this.#left = [];
    this.region = region?.id;
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
    this.back.disabled = false;
  }
  goBack() {
    const last = this.#left.pop();
    this.back.disabled = !this.#left.length;
    if (!last) return;
    this.grid.scrollTo(last.top);
    this.grid.cursor.select(...last.span);
    this.grid.setStatus(`Back at ${hexOffset(last.span[0])}.`);
  }
}
