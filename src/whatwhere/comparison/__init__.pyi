"""The public names, for type checkers and editors, and for __init__.py."""

from whatwhere.comparison.answers import ask as ask
from whatwhere.comparison.experiment import DEMO_SCHEMES as DEMO_SCHEMES
from whatwhere.comparison.experiment import compare as compare
from whatwhere.comparison.experiment import demo as demo
from whatwhere.comparison.experiment import estimate as estimate
from whatwhere.comparison.folder import open_log as open_log
from whatwhere.comparison.read import Comparison as Comparison
from whatwhere.comparison.read import OwnScores as OwnScores
from whatwhere.comparison.read import read_results as read_results
from whatwhere.comparison.saved_model import load_model as load_model
from whatwhere.comparison.statistics import paired_differences as paired_differences
from whatwhere.comparison.tasks import Batch as Batch
from whatwhere.comparison.tasks import Task as Task

__all__: list[str]
