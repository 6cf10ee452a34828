"""The generated parts of README.md and docs/: `make docs`, or `python -m docs.generate` in a checkout.

guarantees.py      which results are the same bits, measured and written
json_schemas.py    JSON Schemas of what commands print with --json
pages.py           the pages and tables, and what they are written from
public_api.py      the public interface, one name a line
scheme_cards.py    a card for each scheme of the catalogue, from one template, and the overview
scheme_figures.py  what the cards draw, for the site
"""
