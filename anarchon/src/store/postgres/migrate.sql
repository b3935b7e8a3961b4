-- For its turn, while the other instances of a deployment have theirs.
SET LOCAL lock_timeout = '20s';
SET LOCAL statement_timeout = '20s';
SET LOCAL client_min_messages = warning;
