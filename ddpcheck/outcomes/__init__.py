"""From how the ranks of a test ended to its one outcome."""
