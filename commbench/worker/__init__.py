"""What one rank does; the only code that needs torch. Imported by launch, inside functions."""
