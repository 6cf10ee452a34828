"""What tutorials claim, as objects: measured at once, or judged by what a comparison measured."""

from whatwhere.claims.token_table import NumberLine as NumberLine
from whatwhere.claims.token_table import TableRow as TableRow
from whatwhere.claims.token_table import TokenTable as TokenTable
from whatwhere.claims.token_table import number_lines as number_lines
from whatwhere.claims.token_table import token_table as token_table
from whatwhere.claims.trained import Judgment as Judgment
from whatwhere.claims.verdicts import verdicts as verdicts
