"""The defaults that several rooms share, each written here alone. Those of one class are in its definition."""

DEFAULT_CAP = 1_024  # tokens that are read of a prompt
DEFAULT_WINDOW = 128  # tokens of the windows that a long text is cut into
PROMPT_STRENGTH = 8.0  # windows: of every ridge on prompts
