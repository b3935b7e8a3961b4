-- Before each call, in the same message, and so in the same transaction. Nothing of it outlives the transaction.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
-- A caller that is gone leaves a statement that waits: not for long, since nobody of ours holds a row over a round trip.
SET LOCAL lock_timeout = '2s';
SET LOCAL statement_timeout = '10s';
-- An answer that the next crash of the server takes back would be a second award.
SELECT 1 WHERE CASE current_setting('synchronous_commit')
    WHEN 'off' THEN set_config('synchronous_commit', 'on', true) ELSE '' END IS NULL;
SET LOCAL anarchon.namespace = $namespace;
SET LOCAL anarchon.batch = $batch;
