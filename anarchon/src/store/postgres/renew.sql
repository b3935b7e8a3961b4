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
    $found
    ORDER BY i.job COLLATE "C"
), written AS (
    UPDATE $schema.job j SET
        -- A watcher times an unchanged end; two renewals within one millisecond must differ too.
        until = (d.us + d.lease + 999) / 1000 + CASE WHEN (d.us + d.lease + 999) / 1000 = j.until THEN 1 ELSE 0 END
    FROM decided d
    $as_read
)
