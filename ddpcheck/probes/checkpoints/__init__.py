"""What a checkpoint is given, and what it gives back."""
