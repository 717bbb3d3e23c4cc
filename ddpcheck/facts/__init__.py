"""What was observed, and what follows from it: pure functions of the evidence, each computed once for a world."""
