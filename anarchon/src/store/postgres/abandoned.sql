-- What the server is busy with for this instance. $mark is what our calls begin with, as a literal; a number follows.
SELECT
    split_part(substr(a.query, length($mark) + 1), ' ', 1),
    coalesce(a.wait_event_type, ''),
    coalesce(a.wait_event, ''),
    CASE WHEN a.wait_event_type = 'Lock' THEN (
        SELECT string_agg(concat('process ', b.pid, ' of user "', b.usename, '"'), ', ')
        FROM pg_stat_activity b
        WHERE b.pid = ANY (pg_blocking_pids(a.pid))
    ) END
FROM pg_stat_activity a
WHERE a.state = 'active' AND starts_with(a.query, $mark)
-- Who waits for a lock may wait for another call of ours, and so for what that one waits for.
ORDER BY a.wait_event_type IS NOT DISTINCT FROM 'Lock'
