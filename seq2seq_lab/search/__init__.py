"""Search: producing sentences from a trained model."""
