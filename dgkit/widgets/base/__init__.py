"""What all panels share.

`panel` is a panel and its views (with panel.js and panel.css), `frames` the one thread there is,
`desk` what those of one session have in common, `cells` and `names` the notebook around them.
"""
