"""Whatwhere's rows, rotations and scores inside models of transformers, and its RoPE types registered there."""
