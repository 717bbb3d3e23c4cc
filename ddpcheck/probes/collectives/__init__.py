"""Probes of process groups and of what is called on them."""
