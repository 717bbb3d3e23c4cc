"""What the site's build adds to Sphinx: pages and tables that are made from the code, and links to files."""
