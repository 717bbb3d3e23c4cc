"""What a training holds, found and named."""
