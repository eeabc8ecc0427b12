"""How a sentence is produced from a trained model."""
