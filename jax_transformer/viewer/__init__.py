"""Pages that show what is inside a trained model (§3.2.3)."""
