"""What releases say about canaries: one module for each way in which they are computed."""
