"""``ddpcheck run``: a script in torchrun's hands, watched, and judged."""
