, decided AS MATERIALIZED (
    SELECT
        i.*,
        j AS record,
        CASE WHEN j.status = 'running' AND j.token = i.token THEN 'extended' ELSE 'gone' END AS rule,
        coalesce(j.status = 'running' AND j.token = i.token, false) AS writes,
        NULL::text AS closes,
        NULL::text AS message
    FROM json_to_recordset(current_setting('anarchon.batch')::json) AS i ($items)
    LEFT JOIN $schema.job j ON j.ns = current_setting('anarchon.namespace') AND j.job = i.job
), written AS (
    UPDATE $schema.job j SET
        -- A watcher times an unchanged end; two renewals within one millisecond must differ too.
        until = (c.us + d.lease + 999) / 1000 + CASE WHEN (c.us + d.lease + 999) / 1000 = j.until THEN 1 ELSE 0 END
    FROM decided d
    JOIN locked USING (place)
    CROSS JOIN clock c
    WHERE j.ns = current_setting('anarchon.namespace') AND j.job = d.job AND d.writes
    RETURNING d.place, j AS record
)
