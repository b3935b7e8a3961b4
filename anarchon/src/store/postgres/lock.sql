-- Locks, in one order for all callers, the rows that these items may change, and tells the next statement which they are.
-- No row comes back.
SELECT 1
FROM (
    SELECT coalesce(string_agg(l.place::text, ','), '') AS places
    FROM (
        SELECT i.place
        FROM json_to_recordset(current_setting('anarchon.batch')::json) AS i ($items)
        JOIN $schema.job j ON j.ns = current_setting('anarchon.namespace') AND j.job = i.job
        WHERE $may_write
        ORDER BY j.job
        FOR UPDATE OF j
    ) l
) chosen
WHERE set_config('anarchon.locked', chosen.places, true) IS NULL;
