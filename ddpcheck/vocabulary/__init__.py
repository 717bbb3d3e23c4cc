"""The nouns and the words that everything shares. Nothing here imports torch."""
