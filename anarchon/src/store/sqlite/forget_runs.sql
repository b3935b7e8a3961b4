DELETE FROM anarchon_run WHERE ns = ?1 AND job = ?2
