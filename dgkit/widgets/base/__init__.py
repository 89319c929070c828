# SPDX-License-Identifier: Apache-2.0
"""Shared parts of the panels.

`panel`: the base class of a panel and its views, with panel.js, channel.js, elements.js, page.js
and units.js.
`page_input`: checks of what a page sends: messages, and fields of forms, with forms.js and
forms.css.
`traits`: traits that show a panel's state; they change on the kernel's event loop.
`esm`: linking a panel's ES modules to the one that anywidget takes.
`session_model`: the state that the panels of one session share.
`scheduler`: the frame thread, which runs long work in steps; blocking calls, waiting for transfers.
`namespace`: the notebook's variables.
`fill_patterns`: bytes that are easy to recognize.
`error_text`: errors as text, with a remedy for each class.
"""
