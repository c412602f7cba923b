"""The forges where plans are reviewed: their comments, labels and kept plans, over their APIs."""
