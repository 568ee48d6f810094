"""A programme that looks for what the tests do not know: fuzzers on every parser, and faults under a real gateway."""
