"""A run as one HTML file: the verdict, the findings, and the timeline of all ranks."""
