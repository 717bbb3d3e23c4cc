"""Probes of processes and threads."""
