-- ?1 the namespace, ?2 who leaves, or an empty text, ?3 and ?4 from when to when a beat is worth keeping.
DELETE FROM anarchon_instance WHERE ns = ?1 AND (instance = ?2 OR seen NOT BETWEEN ?3 AND ?4)
