"""What five tutorials claim, as objects: measured at once, or judged by what a comparison measured."""
