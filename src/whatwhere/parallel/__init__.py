"""Tables and positions on many processes."""
