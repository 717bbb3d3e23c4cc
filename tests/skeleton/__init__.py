"""What `nox -s new_check` writes."""
