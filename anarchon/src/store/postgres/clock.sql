WITH clock AS MATERIALIZED (
    -- Not now(): that is the start of the transaction, before any wait for a table. Read with the records, before any
    -- wait for a row: where its record changes in that wait, the item is decided anew, by a new reading; where its row was only
    -- locked, the write is up to lock_timeout later than this. `expires` is judged as of the reading.
    SELECT us, us / 1000 AS ms, current_setting('anarchon.namespace') AS ns
    FROM (SELECT round(extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us) AS reading
)
