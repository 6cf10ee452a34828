"""The site: `make site`, or `python -m docs.book` in a checkout with the extra `site`.

pages.py       stages Markdown: links between pages, frames with live figures
live.py        the exported studio pages that the frames show
diagrams.py    draws docs/diagrams
reference.py   pages of the docstrings and of the command line
notebooks.py   the course as notebooks, to download
check.py       what a strict build leaves unchecked
zensical.toml  navigation and look
"""
