"""A conformance suite for the authors of training libraries: their trainer, held against what one process would do."""
