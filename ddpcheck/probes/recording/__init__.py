"""How probes record: where they are put, which line they name, and the file that takes what they see."""
