"""The command line. Each group of commands is a file, imported here in the order in which `--help` lists them."""

# isort: off
from whatwhere.cli import comparing as comparing
from whatwhere.cli import encoding as encoding
from whatwhere.cli import inspecting as inspecting
from whatwhere.cli import asking as asking
from whatwhere.cli import mapping as mapping
from whatwhere.cli import differing as differing
from whatwhere.cli import changing as changing
from whatwhere.cli import measuring as measuring
from whatwhere.cli import studio as studio
from whatwhere.cli.app import app as app
from whatwhere.cli.app import main as main
