"""Who was in the data? Attacks on synthetic rows, and what their scores show."""
