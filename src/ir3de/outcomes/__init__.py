"""Everything learnt from the scores that models had on prompts."""
