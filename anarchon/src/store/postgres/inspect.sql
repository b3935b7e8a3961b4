-- One row per item, and one more for each run of its history, the newest first. One statement is one snapshot.
WITH clock AS MATERIALIZED (
    SELECT
        round(extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us,
        current_setting('anarchon.namespace') AS ns
)
SELECT
    i.place, 'read', c.us,
    j.job, j.decided, j.kind, j.occurrence, j.status, j.attempt, j.crashes, j.errors, j.started, j.until,
    j.token, j.holder, j.nonce::text, j.paused, j.cancel, j.manual_asked, j.manual_done, j.schedule::text, j.runs,
    r.seq, r.kind, r.occurrence, r.attempt, r.token, r.holder, r.started, r.ended, r.outcome, r.message
FROM $items
CROSS JOIN clock c
LEFT JOIN $schema.job j ON j.ns = c.ns AND j.job = i.job
-- Where no history is asked for, none is looked for.
LEFT JOIN $schema.run r ON r.ns = CASE WHEN i.history > 0 THEN j.ns END AND r.job = j.job AND r.seq > j.runs - i.history
ORDER BY i.place, r.seq DESC
