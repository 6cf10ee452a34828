"""The command line. Each group of commands is a file, imported here in the order in which `--help` lists them."""

# isort: off
from whatwhere.cli import compare as compare
from whatwhere.cli import results as results
from whatwhere.cli import encode as encode
from whatwhere.cli import inspect as inspect
from whatwhere.cli import check as check
from whatwhere.cli import neighbors as neighbors
from whatwhere.cli import surgery as surgery
from whatwhere.cli import golden as golden
from whatwhere.cli import studio as studio
from whatwhere.cli.app import app as app
from whatwhere.cli.app import main as main
