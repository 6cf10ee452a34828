"""Tables and positions on many processes."""

from whatwhere.where.binding import heads_of as heads_of
