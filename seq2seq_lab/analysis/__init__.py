"""Questions to a trained run: scores, alignments, interventions and attributions."""
