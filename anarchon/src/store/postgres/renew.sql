, decided AS MATERIALIZED (
    SELECT
        i.*,
        j AS record,
        j.ns,
        j.xmin AS version,
        c.us,
        c.ms,
        CASE WHEN j.status = 'running' AND j.token = i.token THEN 'extended' ELSE 'gone' END AS rule,
        coalesce(j.status = 'running' AND j.token = i.token, false) AS writes,
        NULL::text AS closes,
        NULL::text AS message
    FROM $items
    CROSS JOIN clock c
    LEFT JOIN $schema.job j ON j.ns = c.ns AND j.job = i.job
    ORDER BY i.job COLLATE "C"
), written AS (
    UPDATE $schema.job j SET
        -- A watcher times an unchanged end; two renewals within one millisecond must differ too.
        until = (d.us + d.lease + 999) / 1000 + CASE WHEN (d.us + d.lease + 999) / 1000 = j.until THEN 1 ELSE 0 END
    FROM decided d
    WHERE j.ns = d.ns AND j.job = d.job AND j.xmin = d.version AND d.writes
    RETURNING d.job, d.rule, d.us, d.ms, d.closes, d.message, d.record AS before, j AS record
)
