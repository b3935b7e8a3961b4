-- The very row that was read, if it is still that version: after a wait, older servers look only at the latter again.
WHERE j.ctid = d.place AND j.xmin = d.version AND (j.ns = d.ns AND j.job = d.job) IS TRUE AND d.writes
RETURNING d.job, d.rule, d.us, d.ms, d.closes, d.message, d.record AS before, j AS record
