# SPDX-License-Identifier: Apache-2.0
"""A view of a panel without a browser: records messages and calls handlers. For tests/widgets."""

import itertools

from support.processes.waiting import until


class PanelError(Exception):
    """An error as a view shows it: `kind`, the text, `hint` and `field`."""

    def __init__(self, error):
        super().__init__(error["text"])
        self.kind, self.hint = error["kind"], error["hint"]
        self.field = error["field"]


class View:
    """One view of a panel; `messages` holds (fields, buffers) in the order of arrival."""

    _serial = itertools.count(1)

    def __init__(self, panel):
        self.panel = panel
        self.messages = []
        self._send = panel.send
        panel.send = self._record

    def _record(self, content, buffers=None):
        self.messages.append((content, [bytes(buffer) for buffer in buffers or []]))
        self._send(content, buffers)

    def ask(self, name, /, buffers=(), **fields):
        """Call a handler; return its reply with its buffers as `buffers`, or raise PanelError."""
        number = f"test-{next(self._serial)}"
        message = {"id": number, "call": name, "fields": fields}
        self.panel._handle_custom_msg(message, [memoryview(buffer) for buffer in buffers])
        reply, out = next(
            (content, data) for content, data in self.messages
            if content["kind"] == "reply" and content["id"] == number
        )  # fmt: skip
        if "error" in reply:
            raise PanelError(reply["error"])
        return {**reply["value"], "buffers": out}

    def of(self, kind):
        """Return the fields of all messages of a kind, except replies."""
        return [content for content, _ in self.messages if content["kind"] == kind]

    def wait_for(self, kind, found=lambda fields: True, seconds=10):
        """Wait for a message of a kind that satisfies `found`, and return its fields."""
        return until(
            lambda: next((fields for fields in self.of(kind) if found(fields)), None),
            f"a message {kind!r}",
            timeout=seconds,
        )

    @property
    def errors(self):
        """The texts of all errors shown in the strip."""
        return [fields["error"]["text"] for fields in self.of("failed")]
