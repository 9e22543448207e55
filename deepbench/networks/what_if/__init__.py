"""What other hardware or another library would change: hardware, time models, knobs."""
