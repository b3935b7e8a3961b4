, judged AS (
    SELECT
        i.*,
        j.record,
        j.ns,
        j.version,
        j.place,
        c.us,
        c.ms,
        CASE
            -- Given up by a watcher while the holder was away: the holder's own outcome was not kept.
            WHEN j.job IS NULL OR j.token <> i.token OR j.status IN ('idle', 'lost') THEN 'refused'
            WHEN j.status = 'running' THEN 'closed'
            ELSE 'repeated'
        END AS rule
    FROM $items
    CROSS JOIN clock c
    LEFT JOIN LATERAL (
        -- OFFSET: so that each item asks the index for its key, where a plan for few jobs would read them all.
        SELECT o.*, o AS record, o.xmin AS version, o.ctid AS place
        FROM $schema.job o
        WHERE o.ns = c.ns AND o.job = i.job
        OFFSET 0
    ) j ON true
), decided AS MATERIALIZED (
    SELECT *, rule = 'closed' AS writes, outcome AS closes
    FROM judged
    ORDER BY job COLLATE "C"
), written AS (
    UPDATE $schema.job j SET
        status = CASE WHEN d.outcome IN ('retrying', 'released') THEN 'waiting' ELSE d.outcome END,
        errors = CASE d.outcome WHEN 'retrying' THEN least(j.errors, 4294967294) + 1 ELSE j.errors END,
        until = CASE d.outcome
            WHEN 'retrying' THEN (d.us + d.after + 999) / 1000
            WHEN 'released' THEN d.ms
            ELSE j.until
        END,
        runs = least(j.runs, 9223372036854775806) + 1
    FROM decided d
    -- The very row that was read, if it is still that version: after a wait, older servers look only at the latter again.
    WHERE j.ctid = d.place AND j.xmin = d.version AND (j.ns = d.ns AND j.job = d.job) IS TRUE AND d.writes
    RETURNING d.job, d.rule, d.us, d.ms, d.closes, d.message, d.record AS before, j AS record
)
