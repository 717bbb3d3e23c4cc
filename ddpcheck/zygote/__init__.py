"""The process that ranks are forked from, and the life of a rank."""
