"""The examples of a property, in the ranks that run them."""
