REPLACE INTO anarchon_meta (one, version, boot, skew, confirmed) VALUES (1, ?1, ?2, ?3, ?4)
