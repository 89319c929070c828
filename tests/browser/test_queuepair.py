# SPDX-License-Identifier: Apache-2.0
"""The panel of a queue pair: what a kernel posts appears, an error is marked and in words."""

from playwright.sync_api import expect

START = """
import struct, dgkit
device = dgkit.Device("soft")
nic = device.nic()
near, far = dgkit.empty(64), dgkit.empty(64)
lkey, rkey = nic.key(device.register(near)), nic.key(device.register(far))
queue, peer = nic.queue_pair(8), nic.queue_pair(8)
queue.connect(peer), peer.connect(queue)

def post(index, wrong=0):
    struct.pack_into("<Q", queue._memory, queue._POSTED, index + 1)
    entry = struct.pack(">IIII", index << 8 | 8, queue.number << 8 | 3, 8, 0)
    entry += struct.pack(">QII", rkey.address, rkey.number + wrong, 0)
    entry += struct.pack(">IIQ", 16, lkey.number, lkey.address)
    at = queue.config.offsets[2] + index * 64
    queue._memory[at : at + 48] = entry
    struct.pack_into("<Q", queue._memory, queue._DOORBELL, index + 1)

dgkit.QueuePanel(queue)
"""


def test_a_panel_follows_its_queue_pair_and_marks_an_error(notebook):
    notebook.cell(START)
    panel = notebook.ready("queuepair")
    panel.scroll_into_view_if_needed()
    expect(panel.get_by_role("img", name="Places of the ring: 8 free")).to_be_visible()
    notebook.cell("post(0); post(1)")
    entries = panel.get_by_role("region", name="Work queue entries, oldest first")
    expect(entries.locator("tbody tr")).to_have_count(2)
    expect(panel.locator(".dg-queue-failed")).to_have_count(0)
    notebook.cell("post(2, wrong=1)")
    expect(panel.locator(".dg-queue-failed")).to_have_count(2)  # the entry, and its completion
    expect(panel.get_by_text("remote access error (0x13)")).to_be_visible()
    notebook.cell("post(3)")
    expect(panel.get_by_text("flushed (0x05)")).to_be_visible()
    expect(panel.get_by_role("status").first).to_contain_text("error: entry 2: rkey")
    panel.get_by_role("button", name="Copy as text").click()
    expect(panel.get_by_text("Copied.")).to_be_visible()
    notebook.lab_page.shot("queuepair-light", panel)
    notebook.lab_page.theme(True)
    notebook.lab_page.shot("queuepair-dark", panel)
    notebook.cell("device.close()")
    expect(panel.get_by_role("status").first).to_contain_text("closed")
