"""Shape rules and plain Python that knows arrays' shapes but no programs; imports only the vocabulary."""
