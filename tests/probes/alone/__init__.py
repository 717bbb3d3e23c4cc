"""Tests that put all probes in place in their own process, for good: test_alone.py runs each file in one."""
