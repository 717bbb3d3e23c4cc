"""Probes of DistributedDataParallel and of the modules inside."""
