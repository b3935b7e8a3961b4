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
    $found
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
    $as_read
)
