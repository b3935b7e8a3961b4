, decided AS MATERIALIZED (
    SELECT
        i.*,
        j.record,
        j.ns,
        j.version,
        j.place,
        c.us,
        c.ms,
        CASE WHEN j.status = 'running' AND j.token = i.token THEN 'extended' ELSE 'gone' END AS rule,
        coalesce(j.status = 'running' AND j.token = i.token, false) AS writes,
        NULL::text AS closes,
        NULL::text AS message
    FROM $items
    CROSS JOIN clock c
    LEFT JOIN LATERAL (
        -- OFFSET: so that each item asks the index for its key, where a plan for few jobs would read them all.
        SELECT o.*, o AS record, o.xmin AS version, o.ctid AS place
        FROM $schema.job o
        WHERE o.ns = c.ns AND o.job = i.job
        OFFSET 0
    ) j ON true
    ORDER BY i.job COLLATE "C"
), written AS (
    UPDATE $schema.job j SET
        -- A watcher times an unchanged end; two renewals within one millisecond must differ too.
        until = (d.us + d.lease + 999) / 1000 + CASE WHEN (d.us + d.lease + 999) / 1000 = j.until THEN 1 ELSE 0 END
    FROM decided d
    -- The very row that was read, if it is still that version: after a wait, older servers look only at the latter again.
    WHERE j.ctid = d.place AND j.xmin = d.version AND (j.ns = d.ns AND j.job = d.job) IS TRUE AND d.writes
    RETURNING d.job, d.rule, d.us, d.ms, d.closes, d.message, d.record AS before, j AS record
)
