"""Probes of files: what is saved, loaded, renamed, removed and asked for."""
