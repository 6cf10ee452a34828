"""The studio: a local page to look at token vectors (what) and positions (where)."""
