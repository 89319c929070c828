# SPDX-License-Identifier: Apache-2.0
"""The panel of packets: a growing capture, a packet by layers and bytes, a filter, a saved file."""

import dpkt
from playwright.sync_api import expect
from support.doca.captures import HEAD, PING, packet


def test_a_panel_follows_a_capture_and_links_layers_with_bytes(notebook, tmp_path):
    path = tmp_path / "ping.pcapng"
    dropped = packet(b"\xff" * 60, rule="ROOT no entry; dropped: no queue")
    path.write_bytes(HEAD + packet(PING, queue=0, rule="ROOT entry 2") + dropped)
    notebook.cell(f"import dgkit; dgkit.PacketPanel({str(path)!r})")
    panel = notebook.ready("packets")
    panel.scroll_into_view_if_needed()
    rows = panel.get_by_role("region", name="Packets, oldest first").locator("tbody tr")
    expect(rows).to_have_count(2)
    with path.open("ab") as file:
        file.write(packet(PING, at_ns=10**6, sent=True, queue=0))
    expect(rows).to_have_count(3)
    expect(panel.locator("tr.dg-dropped")).to_have_count(1)
    rows.nth(0).click()
    marked = panel.locator(".dg-byte.dg-marked")
    expect(marked).to_have_count(5)  # the data
    panel.get_by_role("button", name="IP", exact=True).click()
    expect(marked).to_have_count(20)
    panel.locator(".dg-byte").first.click()
    expect(marked).to_have_count(14)
    notebook.lab_page.shot("packets-light", panel)
    notebook.lab_page.theme(True)
    notebook.lab_page.shot("packets-dark", panel)
    panel.get_by_label("Filter: words of a row").fill("icmp sent")
    expect(rows).to_have_count(1)
    with notebook.lab_page.page.expect_download() as saved:
        panel.get_by_role("button", name="Save as pcap").click()
    with open(saved.value.path(), "rb") as file:  # noqa: PTH123 - a path of Playwright
        assert [data for _, data in dpkt.pcap.Reader(file)] == [PING]
