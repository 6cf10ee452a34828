"""The parts of report.html: markup, drawings, and one module for each group of sections."""
