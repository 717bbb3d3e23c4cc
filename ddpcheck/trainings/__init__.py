"""Trainings of the conformance suite, as its judges look at them."""
