"""The generated parts of README.md and docs/: `make docs`, or `python -m docs.generate` in a checkout.

pages.py           the pages and tables, and what they are written from
scheme_cards.py    a card for each scheme of the catalogue, from one template, and the overview
scheme_figures.py  what the cards draw, for the site
"""
