"""Probes of optimizers, schedulers and scalers."""
