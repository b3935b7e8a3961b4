, closed AS (
    -- The record holds the run as it was; its slot in the ring comes from the count of runs before it.
    INSERT INTO $schema.run AS r (
        ns, job, slot, seq, kind, occurrence, attempt, token, holder, started, ended, outcome, message
    )
    SELECT
        (d.record).ns, (d.record).job, (d.record).runs % $keep, least((d.record).runs, 9223372036854775806) + 1,
        (d.record).kind, (d.record).occurrence, (d.record).attempt, (d.record).token, (d.record).holder,
        (d.record).started, c.ms, d.closes, d.message
    FROM decided d
    JOIN written USING (place)
    CROSS JOIN clock c
    WHERE d.closes IS NOT NULL
    ON CONFLICT (ns, job, slot) DO UPDATE SET
        seq = excluded.seq, kind = excluded.kind, occurrence = excluded.occurrence, attempt = excluded.attempt,
        token = excluded.token, holder = excluded.holder, started = excluded.started, ended = excluded.ended,
        outcome = excluded.outcome, message = excluded.message
)
SELECT
    d.place,
    -- Decided to write, but not locked: it changed after we had chosen what to lock.
    CASE WHEN d.writes AND w.place IS NULL THEN 'again' ELSE d.rule END,
    c.us,
    (r.record).job, (r.record).decided, (r.record).kind, (r.record).occurrence, (r.record).status,
    (r.record).attempt, (r.record).crashes, (r.record).errors, (r.record).started, (r.record).until,
    (r.record).token, (r.record).holder, (r.record).nonce::text, (r.record).paused, (r.record).cancel,
    (r.record).manual_asked, (r.record).manual_done, (r.record).schedule::text, (r.record).runs
FROM decided d
CROSS JOIN clock c
LEFT JOIN written w USING (place)
CROSS JOIN LATERAL (SELECT CASE WHEN d.writes THEN w.record ELSE d.record END AS record) r
