"""`Positions`: where tokens are, which is later, and to which document each belongs."""
