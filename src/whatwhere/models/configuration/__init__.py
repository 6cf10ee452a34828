"""How configurations of Hugging Face write tokens and positions, one topic per file; no file knows a model type."""
