"""One model that speaks the APIs of OpenAI and Anthropic, asked natively and through the gateway's translation."""
