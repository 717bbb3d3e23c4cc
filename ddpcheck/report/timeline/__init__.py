"""What all ranks did, and when: made once from the evidence, for the page and for the trace."""
