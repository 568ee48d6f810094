"""What the worker processes of one gateway share: a folder, and a table of numbers in it."""
