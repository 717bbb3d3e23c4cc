"""Properties: one example after the other, drawn in one place, and run by all ranks of a test.

PYTEST_DONT_REWRITE (its own assertions are for its authors)
"""
