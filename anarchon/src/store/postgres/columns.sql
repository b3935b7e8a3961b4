-- The columns of our tables, and what this role may not do with each. One statement, as another instance may just make
-- them. $name is the name of the schema as a literal.
SELECT
    c.relname::text,
    a.attname::text,
    format_type(a.atttypid, NULL),
    concat_ws(', ',
        CASE WHEN NOT has_schema_privilege(n.oid, 'USAGE') THEN 'USAGE of the schema' END,
        CASE WHEN NOT has_table_privilege(c.oid, 'SELECT') THEN 'SELECT' END,
        CASE WHEN NOT has_table_privilege(c.oid, 'INSERT') AND c.relname <> 'meta' THEN 'INSERT' END,
        CASE WHEN NOT has_table_privilege(c.oid, 'UPDATE') AND c.relname <> 'meta' THEN 'UPDATE' END,
        CASE WHEN NOT has_table_privilege(c.oid, 'DELETE') AND c.relname <> 'meta' THEN 'DELETE' END),
    -- Their rows have no versions of ours to go by.
    CASE c.relkind WHEN 'v' THEN 'a view' WHEN 'f' THEN 'a foreign table' ELSE '' END
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid
WHERE n.nspname = $name AND c.relname IN ('meta', 'job', 'run', 'instance') AND c.relkind IN ('r', 'p', 'v', 'f')
    AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY c.relname, a.attnum
