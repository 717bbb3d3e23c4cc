"""Judges of the conformance suite: what ranks have recorded in, findings out. They know neither torch nor processes."""
