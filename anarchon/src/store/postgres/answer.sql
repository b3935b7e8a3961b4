, closed AS (
    -- The record holds the run as it was; its slot in the ring comes from the count of runs before it.
    INSERT INTO $schema.run AS r (
        ns, job, slot, seq, kind, occurrence, attempt, token, holder, started, ended, outcome, message
    )
    SELECT
        (w.before).ns, (w.before).job, (w.before).runs % $keep, least((w.before).runs, 9223372036854775806) + 1,
        (w.before).kind, (w.before).occurrence, (w.before).attempt, (w.before).token, (w.before).holder,
        (w.before).started, w.ms, w.closes, w.message
    FROM written w
    WHERE w.closes IS NOT NULL
    ON CONFLICT (ns, job, slot) DO UPDATE SET
        seq = excluded.seq, kind = excluded.kind, occurrence = excluded.occurrence, attempt = excluded.attempt,
        token = excluded.token, holder = excluded.holder, started = excluded.started, ended = excluded.ended,
        outcome = excluded.outcome, message = excluded.message
)
-- No row for an item that would have written, but to a row that somebody has changed meanwhile: it is sent again.
SELECT
    a.job,
    a.rule,
    a.us,
    (a.record).job, (a.record).decided, (a.record).kind, (a.record).occurrence, (a.record).status,
    (a.record).attempt, (a.record).crashes, (a.record).errors, (a.record).started, (a.record).until,
    (a.record).token, (a.record).holder, (a.record).nonce::text, (a.record).paused, (a.record).cancel,
    (a.record).manual_asked, (a.record).manual_done, (a.record).schedule::text, (a.record).runs
FROM (
    SELECT job, rule, us, record FROM written
    UNION ALL
    SELECT job, rule, us, record FROM decided WHERE NOT writes
) a
