"""Probes of loaders, samplers and datasets."""
