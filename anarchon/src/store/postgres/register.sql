, judged AS (
    SELECT
        i.*,
        j AS record,
        CASE
            WHEN j.job IS NULL THEN 'created'
            WHEN j.schedule = i.schedule THEN 'in_force'
            WHEN j.schedule = i.old THEN 'replaced'
            ELSE 'stale'
        END AS rule
    FROM json_to_recordset(current_setting('anarchon.batch')::json) AS i ($items)
    LEFT JOIN $schema.job j ON j.ns = current_setting('anarchon.namespace') AND j.job = i.job
), decided AS MATERIALIZED (
    SELECT *, rule IN ('created', 'replaced') AS writes, NULL::text AS closes, NULL::text AS message FROM judged
), created AS (
    INSERT INTO $schema.job AS j (
        ns, job, decided, kind, occurrence, status, attempt, crashes, errors, started, until,
        token, holder, nonce, paused, cancel, manual_asked, manual_done, schedule, runs
    )
    SELECT
        current_setting('anarchon.namespace'), d.job, c.ms, 'planned', c.ms, 'idle', 0, 0, 0, c.ms, c.ms,
        0, d.holder, '00000000-0000-0000-0000-000000000000', false, NULL, 0, 0, d.schedule, 0
    FROM decided d
    CROSS JOIN clock c
    WHERE d.rule = 'created'
    ORDER BY d.job COLLATE "C"
    ON CONFLICT (ns, job) DO NOTHING
    RETURNING j.job, j AS record
), replaced AS (
    UPDATE $schema.job j SET
        schedule = d.schedule,
        decided = greatest(j.decided, least(d.since, c.ms))
    FROM decided d
    JOIN locked USING (place)
    CROSS JOIN clock c
    WHERE j.ns = current_setting('anarchon.namespace') AND j.job = d.job AND d.rule = 'replaced'
    RETURNING d.place, j AS record
), written AS (
    SELECT d.place, n.record FROM created n JOIN decided d ON d.job = n.job
    UNION ALL
    SELECT place, record FROM replaced
)
