"""What people and machines read: reports of single tests, and of a session."""
