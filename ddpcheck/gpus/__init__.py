"""Which GPUs a test gets: what there is, what a mark asks for, and the leases that keep tests apart."""
