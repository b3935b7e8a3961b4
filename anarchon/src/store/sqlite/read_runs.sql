-- ?1 the namespace, ?2 the names of the jobs as a JSON array; the newest run first.
SELECT
    n.key, r.seq, r.kind, r.occurrence, r.attempt, r.token, r.holder, r.started, r.ended, r.outcome, r.message
FROM json_each(?2) n
CROSS JOIN anarchon_run r ON r.ns = ?1 AND r.job = n.value
ORDER BY n.key, r.seq DESC
