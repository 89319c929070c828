# SPDX-License-Identifier: Apache-2.0
"""HTML as a browser's parser reads it: for tests that nothing in it becomes an element."""

from html.parser import HTMLParser


class Reader(HTMLParser):
    """Collects elements, attributes and text, and holds that what opens also closes."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.texts, self.open, self.other = [], [], [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def handle_comment(self, data):
        self.other.append(data)

    handle_decl = unknown_decl = handle_pi = handle_comment
