"""Colours, markup and small pictures, for everything that is read in a browser."""
