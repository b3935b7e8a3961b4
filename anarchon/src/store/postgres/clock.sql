WITH clock AS MATERIALIZED (
    -- Not now(): that is the start of the transaction, before any wait for a row.
    SELECT us, us / 1000 AS ms
    FROM (SELECT round(extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us) AS reading
), locked AS MATERIALIZED (
    SELECT place::int FROM unnest(string_to_array(current_setting('anarchon.locked'), ',')) AS place
)
