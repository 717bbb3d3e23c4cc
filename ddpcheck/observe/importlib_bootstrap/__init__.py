"""A folder by whose name Python's warnings pass over the frames of probes: see ``ddpcheck.observe.uncounted``."""
