"""From what the judges say of a run to one verdict."""
