"""dgkit itself: its core, its providers, its optional parts."""
