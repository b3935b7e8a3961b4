-- ?1 the namespace.
SELECT instance, seen, zones FROM anarchon_instance WHERE ns = ?1 ORDER BY instance
