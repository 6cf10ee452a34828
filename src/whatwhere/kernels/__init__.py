"""The fast paths: each stands beside its plain twin, gives its numbers, and is tested against it."""
