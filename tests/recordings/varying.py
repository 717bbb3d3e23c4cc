"""What differs from run to run of one program: by program, then by check, rule or ``verdict``, the reason."""

VARYING: dict[str, dict[str, str]] = {}
