REPLACE INTO anarchon_run (
    ns, job, slot, seq, kind, occurrence, attempt, token, holder, started, ended, outcome, message
) VALUES
