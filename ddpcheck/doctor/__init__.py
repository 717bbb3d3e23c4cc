"""``ddpcheck doctor``: what this machine can test, and whether the stack works here."""
