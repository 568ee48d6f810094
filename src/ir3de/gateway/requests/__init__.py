"""What a client asks: its bytes, the text to route on, its wishes, and which expert they lead to."""
