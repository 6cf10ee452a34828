"""What a comparison found, in sentences and cells: of results.json and the saved tables alone."""
