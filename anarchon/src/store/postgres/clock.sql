WITH clock AS MATERIALIZED (
    -- Not now(): that is the start of the transaction, before any wait at the gate.
    SELECT us, us / 1000 AS ms, current_setting('anarchon.namespace') AS ns
    FROM (SELECT round(extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us) AS reading
)
