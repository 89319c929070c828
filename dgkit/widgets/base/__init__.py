"""Shared parts of the panels.

`panel`: the base class of a panel and its views, with panel.js, channel.js, elements.js, page.js
and units.js.
`page_message`: checks of what a page sends.
`esm`: linking a panel's ES modules to the one that anywidget takes.
`session_model`: the state that the panels of one session share.
`scheduler`: the frame thread, which runs long work in steps; blocking calls, waiting for transfers.
`viewers`: the visible views of a panel.
`namespace`: the notebook's variables.
`forms`: validation of form fields, with forms.js and forms.css.
`fill_patterns`: bytes that are easy to recognize.
`error_text`: errors as text, with a remedy for each class.
"""
