"""The privacy report: what was released, what it means, and what an audit of it found."""
