-- Instances claim the same jobs at the same time. Whoever comes second waits here, once, and then sees what the first one
-- did; at the rows it would wait as well, but lock each of them, which is a write. Only a saving: each row is guarded by its
-- version. Nobody waits here for whom there is nothing to win, nor with a row in hand.
SELECT 1
FROM $schema.job j
WHERE j.ns = current_setting('anarchon.namespace') AND j.job = (current_setting('anarchon.job')::text[])[1]
    AND CASE WHEN j.decided < (current_setting('anarchon.at')::bigint[])[1] THEN
        pg_advisory_xact_lock(hashtextextended(j.ns || '/' || j.job, 0)) IS NULL
    END
