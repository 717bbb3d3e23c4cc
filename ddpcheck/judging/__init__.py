"""What judges share: ranks side by side, what happens before what, who waits for whom, what became of files."""
