"""Named keys of clients: the keys file, their limits, and what each of them has used."""
