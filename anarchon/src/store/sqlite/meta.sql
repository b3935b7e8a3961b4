-- The version of the schema, and the clock that the processes of this host agreed on. Always one row.
CREATE TABLE IF NOT EXISTS anarchon_meta (
    one             INTEGER PRIMARY KEY CHECK (one = 1),
    version         INTEGER NOT NULL,
    boot            TEXT,             -- the boot of the machine that `confirmed` belongs to
    skew            INTEGER NOT NULL, -- wall clock - monotonic clock, µs
    confirmed       INTEGER NOT NULL  -- monotonic clock, µs
);
