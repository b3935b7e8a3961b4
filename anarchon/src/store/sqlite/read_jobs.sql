-- ?1 the namespace, ?2 the names of the jobs as a JSON array. One row per name, so that one statement, and with it
-- one snapshot, gives both the records and the clock to judge them by.
SELECT
    m.version, m.boot, m.skew, m.confirmed, n.key,
    j.job, j.decided, j.kind, j.occurrence, j.status, j.attempt, j.crashes, j.errors, j.started, j.until,
    j.token, j.holder, j.nonce, j.paused, j.cancel, j.manual_asked, j.manual_done, j.schedule, j.runs
FROM anarchon_meta m
CROSS JOIN json_each(?2) n
LEFT JOIN anarchon_job j ON j.ns = ?1 AND j.job = n.value
