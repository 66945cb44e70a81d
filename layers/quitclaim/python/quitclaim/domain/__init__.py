"""Rules: states, events, deadlines, who may do what. No I/O, no clock, no environment."""
