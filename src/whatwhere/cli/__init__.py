"""The command line. Each group of commands is a file, imported here in the order in which `--help` lists them."""

from whatwhere.cli import comparing as comparing
from whatwhere.cli import encoding as encoding
from whatwhere.cli import measuring as measuring
from whatwhere.cli.app import app as app
from whatwhere.cli.app import main as main
