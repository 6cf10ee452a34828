"""Sections of findings, and their output to terminal, HTML and SVG: escaping, numbers, tables and charts."""
