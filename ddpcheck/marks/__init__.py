"""What the marks ``ddp`` and ``gpu`` may say."""
