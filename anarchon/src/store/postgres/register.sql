, judged AS (
    SELECT
        i.*,
        j AS record,
        j.ns,
        j.xmin AS version,
        c.us,
        c.ms,
        CASE
            WHEN j.job IS NULL THEN 'created'
            WHEN j.schedule = i.schedule THEN 'in_force'
            WHEN j.schedule = i.old THEN 'replaced'
            ELSE 'stale'
        END AS rule
    FROM $items
    CROSS JOIN clock c
    LEFT JOIN $schema.job j ON j.ns = c.ns AND j.job = i.job
), decided AS MATERIALIZED (
    SELECT *, rule IN ('created', 'replaced') AS writes, NULL::text AS closes, NULL::text AS message
    FROM judged
    ORDER BY job COLLATE "C"
), created AS (
    INSERT INTO $schema.job AS j (
        ns, job, decided, kind, occurrence, status, attempt, crashes, errors, started, until,
        token, holder, nonce, paused, cancel, manual_asked, manual_done, schedule, runs
    )
    SELECT
        current_setting('anarchon.namespace'), d.job, d.ms, 'planned', d.ms, 'idle', 0, 0, 0, d.ms, d.ms,
        0, d.holder, '00000000-0000-0000-0000-000000000000', false, NULL, 0, 0, d.schedule, 0
    FROM decided d
    WHERE d.rule = 'created'
    ORDER BY d.job COLLATE "C"
    ON CONFLICT (ns, job) DO NOTHING
    RETURNING j AS record
), replaced AS (
    UPDATE $schema.job j SET
        schedule = d.schedule,
        decided = greatest(j.decided, least(d.since, d.ms))
    FROM decided d
    WHERE j.ns = d.ns AND j.job = d.job AND j.xmin = d.version AND d.rule = 'replaced'
    RETURNING d.job, d.rule, d.us, d.ms, d.closes, d.message, d.record AS before, j AS record
), written AS (
    SELECT
        (n.record).job, 'created' AS rule, c.us, c.ms, NULL::text AS closes, NULL::text AS message,
        NULL::$schema.job AS before, n.record
    FROM created n
    CROSS JOIN clock c
    UNION ALL
    SELECT * FROM replaced
)
