"""The imperative engine: operators computed as they are written, a tape, updates; imports no layers."""
