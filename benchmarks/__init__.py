"""Speed and memory, measured as ratios within one run; each script prints a table, or JSON with --json."""
