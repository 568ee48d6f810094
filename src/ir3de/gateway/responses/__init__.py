"""What goes back: an expert's answer, whole or streamed, signed with who gave it."""
