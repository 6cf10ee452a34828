"""Campaigns that try to break the product: `python -m reliability`; their findings are in docs/reliability/."""
