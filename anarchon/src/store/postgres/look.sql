-- What the server is, and whether our schema is there. $name is the name of the schema as a literal.
SELECT
    current_setting('server_version'),
    current_setting('server_version_num')::int,
    pg_is_in_recovery(),
    current_setting('transaction_read_only') = 'on',
    current_setting('fsync') = 'on',
    current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names') <> '',
    current_setting('server_encoding') = 'UTF8',
    current_user::text,
    n.oid IS NOT NULL
FROM (VALUES (1)) AS one
LEFT JOIN pg_namespace n ON n.nspname = $name
