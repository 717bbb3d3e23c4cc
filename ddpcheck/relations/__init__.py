"""What holds of a right training: general statements over the facts, which know no check and no kind of program."""
