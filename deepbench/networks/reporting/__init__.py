"""Tables, sentences and pictures of traces, predictions and what-if."""
