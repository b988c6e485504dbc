"""Places, scopes, and running one operator or one block; imports the IR and what lies below it."""
