"""Runs beside one another: a table with significance, and a page to look through. Reads run folders alone."""
