"""The pytest process's side of the plugin."""
