-- Each item with its record, where there is one.
FROM $items
CROSS JOIN clock c
LEFT JOIN LATERAL (
    -- OFFSET: so that each item asks the index for its key, where a plan for few jobs would read them all.
    SELECT o.*, o AS record, o.xmin AS version, o.ctid AS place
    FROM $schema.job o
    WHERE o.ns = c.ns AND o.job = i.job
    OFFSET 0
) j ON true
