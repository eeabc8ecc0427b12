"""What is shown of runs: the report of one run, and the comparison of several."""
