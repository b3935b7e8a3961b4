, judged AS (
    SELECT
        i.*,
        j AS record,
        CASE
            -- Given up by a watcher while the holder was away: the holder's own outcome was not kept.
            WHEN j.job IS NULL OR j.token <> i.token OR j.status IN ('idle', 'lost') THEN 'refused'
            WHEN j.status = 'running' THEN 'closed'
            ELSE 'repeated'
        END AS rule
    FROM json_to_recordset(current_setting('anarchon.batch')::json) AS i ($items)
    LEFT JOIN $schema.job j ON j.ns = current_setting('anarchon.namespace') AND j.job = i.job
), decided AS MATERIALIZED (
    SELECT *, rule = 'closed' AS writes, outcome AS closes FROM judged
), written AS (
    UPDATE $schema.job j SET
        status = CASE WHEN d.outcome IN ('retrying', 'released') THEN 'waiting' ELSE d.outcome END,
        errors = CASE d.outcome WHEN 'retrying' THEN least(j.errors, 4294967294) + 1 ELSE j.errors END,
        until = CASE d.outcome
            WHEN 'retrying' THEN (c.us + d.after + 999) / 1000
            WHEN 'released' THEN c.ms
            ELSE j.until
        END,
        runs = least(j.runs, 9223372036854775806) + 1
    FROM decided d
    JOIN locked USING (place)
    CROSS JOIN clock c
    WHERE j.ns = current_setting('anarchon.namespace') AND j.job = d.job AND d.writes
    RETURNING d.place, j AS record
)
