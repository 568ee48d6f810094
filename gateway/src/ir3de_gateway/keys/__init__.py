"""Who asks, and how much they may: named keys, their limits, and what each of them has used."""
