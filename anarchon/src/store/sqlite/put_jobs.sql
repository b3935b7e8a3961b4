REPLACE INTO anarchon_job (
    ns, job, decided, kind, occurrence, status, attempt, crashes, errors, started, until,
    token, holder, nonce, paused, cancel, manual_asked, manual_done, schedule, runs
) VALUES
