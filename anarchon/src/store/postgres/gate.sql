-- Instances claim the same jobs at the same time. Whoever comes second waits here, once, and then sees what the first one
-- did; at the rows it would wait as well, but lock each of them, which is a write. Nobody waits here whose occurrence is
-- decided already, nor with a row in hand. Only a saving: each row is guarded by its version, and where somebody keeps the
-- gate, which is open to whoever may connect, the call is sent again without it.
SELECT 1
FROM $schema.job j
WHERE j.ns = current_setting('anarchon.namespace') AND j.job = (current_setting('anarchon.job')::text[])[1]
    AND CASE WHEN j.decided < (current_setting('anarchon.at')::bigint[])[1] THEN
        -- Of this table, and apart from what the application locks.
        pg_advisory_xact_lock(hashtextextended(concat_ws('/', j.tableoid, j.ns, j.job), $lock)) IS NULL
    END
