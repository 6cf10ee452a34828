"""Keys of windows that count both sides of a token, for all layers or in a list."""

from dataclasses import dataclass

from whatwhere.errors import SettingError
from whatwhere.models.configuration.keys import Keys
from whatwhere.models.configuration.model_type import Position, Sizes
from whatwhere.where.window import Window


@dataclass(frozen=True)
class BothSides:
    """Read windows that count both sides of a token: a number, or a list with one for each layer, as in Longformer.

    Args:
        key: of the numbers, which are even: half of one is on each side.
        default: if it is absent.
    """

    key: str = "attention_window"
    default: int = 512

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[tuple[Window | None, ...], tuple[str, ...]]:
        """Return the window of each layer, and a note."""
        if isinstance(keys.values.get(self.key), list | tuple):
            listed = keys.listed(self.key, sizes.layers) or ()
            if len(listed) != sizes.layers:
                raise SettingError(
                    f"{keys.path}{self.key} has {len(listed)} numbers, but there are {sizes.layers} layers."
                )
            both = [Keys({self.key: one}, {}, keys.owner, keys.path).whole(self.key) for one in listed]
        else:
            both = [keys.whole(self.key, default=self.default)] * sizes.layers
        for one in both:
            if one % 2:
                raise SettingError(f"{keys.path}{self.key} is {one}, but must be even: half of it is on each side.")
        windows = tuple(Window(one // 2 + 1) for one in both)
        return windows, (f"{len(windows)} of {len(windows)} layers have windows: see `windows`",)
