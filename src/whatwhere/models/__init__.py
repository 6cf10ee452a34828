"""Other people's models: their configurations read and written, their layers replaced and put back."""
