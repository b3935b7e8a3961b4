SELECT version, boot, skew, confirmed FROM anarchon_meta
