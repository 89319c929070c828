# SPDX-License-Identifier: Apache-2.0
"""A page that loads scripts of panels slowly: anywidget gives up their models, dgkit does not."""

from playwright.sync_api import expect

GIVEN_UP = "[anywidget] Failed to initialize model"
# anywidget waits two seconds for a script; here it does not wait.
IMPATIENT = """
const timeout = AbortSignal.timeout.bind(AbortSignal);
AbortSignal.timeout = (ms) => {
  if (ms !== 2000) return timeout(ms);
  const given_up = new AbortController();
  queueMicrotask(() => given_up.abort());
  return given_up.signal;
};
"""


def test_a_panel_whose_script_came_late_is_drawn_and_follows_its_kernel(new_page):
    new_page.forgiven = GIVEN_UP
    new_page.context.add_init_script(IMPATIENT)
    new_page.reload()
    notebook = new_page.notebook("late")
    notebook.cell("import dgkit\ns = dgkit.connect()\ndgkit.TransferPanel(s)")
    panel = notebook.ready("transfer")
    assert any(GIVEN_UP in error for error in new_page.errors)
    notebook.cell("region = s.empty(64, name='made later')")
    expect(panel.get_by_label("Region", exact=True)).to_contain_text("made later")
