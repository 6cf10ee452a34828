"""What pages are made of: markup that escapes, drawings, numbers in words, one style."""
