"""A diagnosis for people: `page` for the terminal, `shown` as text and as a notebook's card."""
