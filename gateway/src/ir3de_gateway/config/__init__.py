"""The configuration: its fields, the YAML file, and messages about mistakes in it."""
