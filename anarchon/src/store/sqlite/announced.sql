-- ?1 the namespace, ?2 the asker, ?3 and ?4 from when to when a beat counts, ?5 lines as in `schedules`, as a JSON array.
SELECT n.key
FROM json_each(?5) n
WHERE EXISTS (
    SELECT 1 FROM anarchon_instance i
    WHERE i.ns = ?1 AND i.instance <> ?2 AND i.seen BETWEEN ?3 AND ?4 AND instr(i.schedules, n.value) > 0
)
ORDER BY n.key
