"""Other people's outcomes with whole tasks held out: whether routing helps on tasks that no router has seen."""
