"""From token ids to a decision, and its explanation."""
