"""From statistics or outcomes to a router: building one, and changing its experts."""
