"""Train schemes side by side, test them in and beyond the trained length, and return what was measured as data."""

from typing import TYPE_CHECKING

from whatwhere.public_names import loader

if TYPE_CHECKING:
    from whatwhere.comparison.answers import ask as ask
    from whatwhere.comparison.experiment import DEMO_SCHEMES as DEMO_SCHEMES
    from whatwhere.comparison.experiment import command_line as command_line
    from whatwhere.comparison.experiment import compare as compare
    from whatwhere.comparison.experiment import demo as demo
    from whatwhere.comparison.experiment import estimate as estimate
    from whatwhere.comparison.own_scores import OwnScores as OwnScores
    from whatwhere.comparison.read import Comparison as Comparison
    from whatwhere.comparison.read import read_results as read_results
    from whatwhere.comparison.saved_model import load_model as load_model
    from whatwhere.comparison.scalars import open_log as open_log
    from whatwhere.comparison.statistics import paired_differences as paired_differences
    from whatwhere.comparison.statistics import paired_differences_of_scores as paired_differences_of_scores
    from whatwhere.comparison.tasks import Batch as Batch
    from whatwhere.comparison.tasks import Task as Task

# Loaded when first used, as in whatwhere: results are read without loading what trains models.
_HOME = {
    "Batch": "tasks",
    "Comparison": "read",
    "DEMO_SCHEMES": "experiment",
    "OwnScores": "own_scores",
    "Task": "tasks",
    "ask": "answers",
    "command_line": "experiment",
    "compare": "experiment",
    "demo": "experiment",
    "estimate": "experiment",
    "load_model": "saved_model",
    "open_log": "scalars",
    "paired_differences": "statistics",
    "paired_differences_of_scores": "statistics",
    "read_results": "read",
}

__all__ = list(_HOME)

if not TYPE_CHECKING:  # else a misspelt name would be Any
    __getattr__ = loader(__name__, _HOME)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
