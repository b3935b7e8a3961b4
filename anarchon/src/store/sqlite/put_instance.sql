-- Keeps the long text as it is where it is the same: SQLite then writes the one page that holds `seen`.
INSERT INTO anarchon_instance (seen, ns, instance, zones, schedules) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (ns, instance) DO UPDATE SET seen = excluded.seen, zones = excluded.zones, schedules = excluded.schedules
