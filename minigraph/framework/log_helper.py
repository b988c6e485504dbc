"""Loggers as fluid's programs make them."""

import logging

__all__ = ["get_logger"]


def get_logger(name: str, level: int, fmt: str | None = None) -> logging.Logger:
    """The logger of a name, which writes messages of at least `level` to the standard error, in the format `fmt`."""
    logger = logging.getLogger(name)
    logger.setLevel(level)
    logger.propagate = False  # the handlers of loggers above would write each message again
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler())
    if fmt is not None:
        logger.handlers[0].setFormatter(logging.Formatter(fmt))
    return logger
