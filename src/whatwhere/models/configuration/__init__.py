"""Keys of Hugging Face configurations that concern tokens and positions, one topic per file, for any model type."""
