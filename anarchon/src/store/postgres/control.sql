, judged AS (
    SELECT
        i.*,
        j AS record,
        j.ns,
        j.xmin AS version,
        c.us,
        c.ms,
        CASE
            WHEN j.job IS NULL THEN 'unregistered'
            WHEN i.action = 'cancel' AND (j.token <> i.token OR j.status NOT IN ('running', 'waiting')) THEN 'no_such_run'
            ELSE 'done'
        END AS rule
    FROM $items
    CROSS JOIN clock c
    LEFT JOIN $schema.job j ON j.ns = c.ns AND j.job = i.job
), decided AS MATERIALIZED (
    SELECT
        *,
        rule = 'done' AND CASE action
            WHEN 'pause' THEN NOT (record).paused
            WHEN 'resume' THEN (record).paused
            WHEN 'cancel' THEN (record).status = 'waiting' OR (record).cancel IS DISTINCT FROM token
            ELSE true
        END AS writes,
        CASE WHEN rule = 'done' AND action = 'cancel' AND (record).status = 'waiting' THEN 'cancelled' END AS closes,
        NULL::text AS message
    FROM judged
    ORDER BY job COLLATE "C"
), changed AS (
    UPDATE $schema.job j SET
        manual_asked = CASE d.action
            WHEN 'trigger' THEN least(j.manual_asked, 9223372036854775806) + 1
            ELSE j.manual_asked
        END,
        paused = CASE d.action WHEN 'pause' THEN true WHEN 'resume' THEN false ELSE j.paused END,
        decided = CASE d.action WHEN 'resume' THEN greatest(j.decided, d.ms) ELSE j.decided END,
        cancel = CASE WHEN d.action = 'cancel' AND d.closes IS NULL THEN d.token ELSE j.cancel END,
        status = coalesce(d.closes, j.status),
        runs = CASE WHEN d.closes IS NULL THEN j.runs ELSE least(j.runs, 9223372036854775806) + 1 END
    FROM decided d
    WHERE j.ns = d.ns AND j.job = d.job AND j.xmin = d.version AND d.writes AND d.action <> 'forget'
    RETURNING d.job, d.rule, d.us, d.ms, d.closes, d.message, d.record AS before, j AS record
), forgotten AS (
    DELETE FROM $schema.job j
    USING decided d
    WHERE j.ns = d.ns AND j.job = d.job AND j.xmin = d.version AND d.writes AND d.action = 'forget'
    RETURNING d.job, d.rule, d.us, d.ms, d.closes, d.message, d.record AS before, j AS record
), forgotten_runs AS (
    DELETE FROM $schema.run r
    USING forgotten f
    WHERE r.ns = (f.before).ns AND r.job = (f.before).job
), written AS (
    SELECT * FROM changed UNION ALL SELECT * FROM forgotten
)
