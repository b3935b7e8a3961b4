-- One row of constant size per job: the record of the claim and lease protocol.
CREATE TABLE IF NOT EXISTS anarchon_job (
    ns              TEXT    NOT NULL,
    job             TEXT    NOT NULL,
    decided         INTEGER NOT NULL, -- ms since the Unix epoch, like started and until
    kind            TEXT    NOT NULL, -- planned | manual
    occurrence      INTEGER NOT NULL, -- planned: ms since the Unix epoch; manual: number of the trigger
    status          TEXT    NOT NULL, -- idle | running | waiting | succeeded | failed | cancelled | lost
    attempt         INTEGER NOT NULL,
    crashes         INTEGER NOT NULL,
    errors          INTEGER NOT NULL,
    started         INTEGER NOT NULL,
    until           INTEGER NOT NULL,
    token           INTEGER NOT NULL,
    holder          TEXT    NOT NULL,
    nonce           TEXT    NOT NULL,
    paused          INTEGER NOT NULL,
    cancel          INTEGER,
    manual_asked    INTEGER NOT NULL,
    manual_done     INTEGER NOT NULL,
    schedule        TEXT    NOT NULL,
    runs            INTEGER NOT NULL,
    PRIMARY KEY (ns, job)
) WITHOUT ROWID;

-- The newest runs of each job: a ring that needs no cleaning.
CREATE TABLE IF NOT EXISTS anarchon_run (
    ns              TEXT    NOT NULL,
    job             TEXT    NOT NULL,
    slot            INTEGER NOT NULL, -- (seq - 1) modulo the length of the ring
    seq             INTEGER NOT NULL, -- which run of the job, from 1
    kind            TEXT    NOT NULL,
    occurrence      INTEGER NOT NULL,
    attempt         INTEGER NOT NULL,
    token           INTEGER NOT NULL,
    holder          TEXT    NOT NULL,
    started         INTEGER NOT NULL,
    ended           INTEGER NOT NULL,
    outcome         TEXT    NOT NULL, -- succeeded | failed | retrying | released | cancelled | lost
    message         TEXT,
    PRIMARY KEY (ns, job, slot)
) WITHOUT ROWID;

-- Who is there. `seen` comes first, so that a beat touches one page however many jobs the instance has.
CREATE TABLE IF NOT EXISTS anarchon_instance (
    seen            INTEGER NOT NULL, -- ms since the Unix epoch
    ns              TEXT    NOT NULL,
    instance        TEXT    NOT NULL,
    zones           TEXT    NOT NULL,
    schedules       TEXT    NOT NULL, -- a line break, then a line "job fingerprint" each
    PRIMARY KEY (ns, instance)
);
