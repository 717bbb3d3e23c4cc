"""Which findings are accepted, by settings, comments on lines, and a baseline; applied to a verdict in one place."""
