"""Programs as text: lexer, parser, printer and diff."""
