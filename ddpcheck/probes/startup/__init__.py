"""A folder for PYTHONPATH: its sitecustomize begins to watch in every interpreter."""
