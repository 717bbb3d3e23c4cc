"""Probes of random streams."""
