-- ?1 the namespace, ?2 the asker, ?3 and ?4 from when to when a beat counts. Those who wait for the same mostly say the same.
SELECT DISTINCT substr(i.schedules, 1, instr(i.schedules, char(10) || char(10)))
FROM anarchon_instance i
WHERE i.ns = ?1 AND i.instance <> ?2 AND i.seen BETWEEN ?3 AND ?4 AND substr(i.schedules, 1, 1) <> char(10)
