"""The checks: one folder for each invariant, found by :mod:`ddpcheck.checks.registry`."""
