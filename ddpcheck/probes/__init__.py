"""What a rank records: facts as plain data, for a judge elsewhere."""
