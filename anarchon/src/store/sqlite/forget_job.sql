DELETE FROM anarchon_job WHERE ns = ?1 AND job = ?2
