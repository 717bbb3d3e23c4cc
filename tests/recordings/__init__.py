"""Programs are run once; their evidence is kept, and judged again and again."""
