"""The studio: a local page on which one looks at what a token is, and where it stands."""
