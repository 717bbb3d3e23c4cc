"""By the name of this folder Python's warnings pass over the frames of probes: see ``recording.warning_lines``."""
