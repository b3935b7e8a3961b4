-- For those who listen, once this transaction is over. Gives no row.
WITH told AS MATERIALIZED (
    SELECT pg_notify('anarchon', json_build_array(current_setting('anarchon.namespace'), i.job)::text) AS nothing
    FROM $items
)
SELECT 1 FROM told WHERE nothing IS NULL
