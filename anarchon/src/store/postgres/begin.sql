-- Before each call, in the same message, and so in the same transaction, which it leaves with the parameters of the call.
-- Nothing of it outlives the transaction. As constants of one query they are left out of what pg_stat_statements keeps:
-- a SET of its own would be another statement with each call.
SELECT 1 WHERE concat(
    -- A caller that is gone leaves a statement that waits: not for long, since nobody of ours holds a row over a round trip.
    set_config('lock_timeout', '2s', true),
    set_config('statement_timeout', '10s', true),
    -- How many items the JSON holds is guessed far too high: to compile a statement would take a hundred times what it runs.
    set_config('jit', 'off', true),
    -- An answer that the next crash of the server takes back would be a second award.
    CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END,
    set_config('anarchon.namespace', $namespace, true),
    set_config('anarchon.batch', $batch, true)
) IS NULL;
