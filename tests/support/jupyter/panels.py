"""A view of a panel without a browser: what it was told, and what it asks. For tests/widgets."""

import itertools

from support.processes.waiting import until


class PanelError(Exception):
    """What a view would show in the strip: `kind`, the text, `way_out`."""

    def __init__(self, error):
        super().__init__(error["text"])
        self.kind, self.hint = error["kind"], error["hint"]
        self.field = error["field"]


class View:
    """One view of a panel: messages are kept as (fields, buffers) in the order they came."""

    _serial = itertools.count(1)

    def __init__(self, panel):
        self.panel = panel
        self.told = []
        self._send = panel.send
        panel.send = self._take

    def _take(self, content, buffers=None):
        self.told.append((content, [bytes(buffer) for buffer in buffers or []]))
        self._send(content, buffers)

    def ask(self, name, /, buffers=(), **fields):
        """The reply, its buffers as `buffers`. PanelError: what a person would read."""
        number = f"test-{next(self._serial)}"
        message = {"id": number, "call": name, "fields": fields}
        self.panel._handle_custom_msg(message, [memoryview(buffer) for buffer in buffers])
        reply, out = next(
            (told, kept) for told, kept in self.told
            if told["kind"] == "reply" and told["id"] == number
        )  # fmt: skip
        if "error" in reply:
            raise PanelError(reply["error"])
        return {**reply["value"], "buffers": out}

    def of(self, kind):
        """The fields of all messages of a kind, replies apart."""
        return [content for content, _ in self.told if content["kind"] == kind]

    def wait_for(self, kind, found=lambda fields: True, seconds=10):
        """The fields of the first message of a kind that is like that, once it is there."""
        return until(
            lambda: next((fields for fields in self.of(kind) if found(fields)), None),
            f"a message {kind!r}",
            timeout=seconds,
        )

    @property
    def errors(self):
        """What the strip was told, as texts."""
        return [fields["error"]["text"] for fields in self.of("failed")]
