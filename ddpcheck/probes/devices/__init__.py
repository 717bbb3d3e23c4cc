"""Probes that ask a device how far it has come."""
