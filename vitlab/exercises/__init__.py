"""The notebooks' exercises: found, checked without harm to the machine, made into assignments (all sections)."""
