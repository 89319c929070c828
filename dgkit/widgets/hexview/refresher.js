// Repeats a request while it becomes due again; one is in flight at a time.

export class Refresher {
  #request;
  #asking = false;
  #again = false;
  #timer = 0;
  // `request` sends the request and shows the reply.
  constructor(request) {
    this.#request = request;
  }
  // Sends the request after a pause, which begins again with each call.
  soon(pauseMs) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(), pauseMs);
  }
  async #ask() {
    if (this.#asking) return void (this.#again = true);
    this.#asking = true;
    try {
      do {
        this.#again = false;
        await this.#request();
      } while (this.#again);
    } catch {
      /* the kernel has ended, which the panel shows */
    } finally {
      this.#asking = false;
    }
  }
}
