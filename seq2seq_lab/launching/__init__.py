"""Starting runs: the command line, one process or many, studies."""
