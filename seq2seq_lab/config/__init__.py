"""The configuration: its schema, composition, checks, and the user's own components."""
