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
-- OFFSET: so that each item asks the index for its key, where a plan for few jobs would read them all.
LEFT JOIN LATERAL (SELECT * FROM $schema.job o WHERE o.ns = c.ns AND o.job = i.job OFFSET 0) j ON true
-- Where no history is asked for, none is looked for.
LEFT JOIN LATERAL (
    SELECT *
    FROM $schema.run o
    WHERE i.history > 0 AND o.ns = j.ns AND o.job = j.job AND o.seq > j.runs - i.history
    OFFSET 0
) r ON true
ORDER BY i.place, r.seq DESC
