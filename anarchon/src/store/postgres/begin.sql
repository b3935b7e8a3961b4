-- Before each call, in the same message, and so in the same transaction, which it leaves with the parameters of the call.
-- Nothing of it outlives the transaction. As constants of one query they are left out of what pg_stat_statements keeps:
-- a SET of its own would be another statement with each call.
SELECT 1 WHERE concat(
    -- A caller that is gone leaves a statement that waits: not for long, since nobody of ours holds a row over a round trip.
    set_config('lock_timeout', '2s', true),
    set_config('statement_timeout', '10s', true),
    -- How many items there are is not known to the planner: to compile a statement would take a hundred times what it runs.
    set_config('jit', 'off', true),
    -- Each item finds its row by the key. A plan that is kept has to be right as well when there are more jobs than at the
    -- time it was made. (In which order rows are written is not left to the plan: ORDER BY in `decided` says it.)
    set_config('enable_indexscan', 'on', true),
    set_config('enable_tidscan', 'on', true),
    set_config('enable_nestloop', 'on', true),
    set_config('enable_material', 'off', true),
    set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true),
    set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true),
    -- An answer that the next crash of the server takes back would be a second award.
    CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END,
    set_config('anarchon.namespace', $namespace, true)$parameters
) IS NULL;
