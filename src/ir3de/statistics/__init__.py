"""What is counted of a domain: additive integers, a sample of prompts, and the files they are kept in."""
