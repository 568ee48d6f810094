"""The configuration: its fields, the YAML file they are read from, and what is said about mistakes in it."""
