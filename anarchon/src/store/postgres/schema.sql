CREATE SCHEMA IF NOT EXISTS $schema;

-- The version of this schema. Always one row.
CREATE TABLE IF NOT EXISTS $schema.meta (
    one             boolean  PRIMARY KEY DEFAULT true CHECK (one),
    version         integer  NOT NULL
);
INSERT INTO $schema.meta (version) VALUES (1) ON CONFLICT DO NOTHING;

-- One row of constant size per job: the record of the claim and lease protocol. Half of each page is left free and no
-- column outside the key is indexed, so that an update stays on its page and touches no index.
CREATE TABLE IF NOT EXISTS $schema.job (
    ns              text     COLLATE "C" NOT NULL,
    job             text     COLLATE "C" NOT NULL,
    decided         bigint   NOT NULL, -- ms since the Unix epoch, like started and until
    kind            text     NOT NULL CHECK (kind IN ('planned', 'manual')),
    occurrence      bigint   NOT NULL, -- planned: ms since the Unix epoch; manual: number of the trigger
    status          text     NOT NULL
        CHECK (status IN ('idle', 'running', 'waiting', 'succeeded', 'failed', 'cancelled', 'lost')),
    attempt         bigint   NOT NULL CHECK (attempt BETWEEN 0 AND 4294967295),
    crashes         bigint   NOT NULL CHECK (crashes BETWEEN 0 AND 4294967295),
    errors          bigint   NOT NULL CHECK (errors BETWEEN 0 AND 4294967295),
    started         bigint   NOT NULL,
    until           bigint   NOT NULL,
    token           bigint   NOT NULL CHECK (token >= 0),
    holder          text     NOT NULL,
    nonce           uuid     NOT NULL, -- 128 bits; not one of the kinds that uuids have
    paused          boolean  NOT NULL,
    cancel          bigint,
    manual_asked    bigint   NOT NULL CHECK (manual_asked >= 0),
    manual_done     bigint   NOT NULL CHECK (manual_done >= 0),
    schedule        uuid     NOT NULL, -- 128 bits of fingerprint
    runs            bigint   NOT NULL CHECK (runs >= 0),
    PRIMARY KEY (ns, job)
) WITH (fillfactor = 50);

-- The newest runs of each job: a ring that needs no cleaning.
CREATE TABLE IF NOT EXISTS $schema.run (
    ns              text     COLLATE "C" NOT NULL,
    job             text     COLLATE "C" NOT NULL,
    slot            integer  NOT NULL, -- (seq - 1) modulo the length of the ring
    seq             bigint   NOT NULL, -- which run of the job, from 1
    kind            text     NOT NULL,
    occurrence      bigint   NOT NULL,
    attempt         bigint   NOT NULL,
    token           bigint   NOT NULL,
    holder          text     NOT NULL,
    started         bigint   NOT NULL,
    ended           bigint   NOT NULL,
    outcome         text     NOT NULL, -- succeeded | failed | retrying | released | cancelled | lost
    message         text,
    PRIMARY KEY (ns, job, slot)
) WITH (fillfactor = 50);

-- Who is there.
CREATE TABLE IF NOT EXISTS $schema.instance (
    ns              text     COLLATE "C" NOT NULL,
    instance        text     COLLATE "C" NOT NULL,
    seen            bigint   NOT NULL, -- µs since the Unix epoch
    zones           text     NOT NULL,
    schedules       text     NOT NULL, -- a line break, then a line "job fingerprint" each
    PRIMARY KEY (ns, instance)
) WITH (fillfactor = 50);
