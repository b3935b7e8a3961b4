-- One item: the caller. A row says what it is in its first column.
WITH clock AS MATERIALIZED (
    SELECT round(extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us
), me AS (
    SELECT * FROM $items
), live AS (
    -- A beat from the future is one from before the clock was set back: a live instance repeats it soon.
    SELECT o.* FROM $schema.instance o, me, clock c
    WHERE o.ns = current_setting('anarchon.namespace') AND abs(c.us - o.seen) <= me.age
), gone AS (
    DELETE FROM $schema.instance o USING me, clock c
    WHERE o.ns = current_setting('anarchon.namespace')
        AND CASE WHEN o.instance = me.instance THEN me.leaves ELSE abs(c.us - o.seen) > me.forgotten END
), here AS (
    INSERT INTO $schema.instance AS o (ns, instance, seen, zones, schedules)
    SELECT current_setting('anarchon.namespace'), me.instance, c.us, me.zones, me.schedules
    FROM me, clock c
    WHERE NOT me.leaves
    ON CONFLICT (ns, instance) DO UPDATE SET
        seen = excluded.seen,
        zones = excluded.zones,
        -- The long text is kept as it is where it is the same, also where it is stored out of line.
        schedules = CASE o.schedules WHEN excluded.schedules THEN o.schedules ELSE excluded.schedules END
)
SELECT 'clock', NULL AS instance, NULL AS zones, c.us FROM clock c
UNION ALL
SELECT 'live', live.instance, live.zones, NULL FROM live
UNION ALL
SELECT 'announced', NULL, NULL, n.place - 1
FROM me, json_array_elements_text(me.contested) WITH ORDINALITY AS n (line, place)
WHERE EXISTS (
    SELECT FROM live WHERE live.instance <> me.instance AND strpos(live.schedules, n.line) > 0
)
UNION ALL
-- Those who wait for the same mostly say the same.
SELECT DISTINCT 'waiting', split_part(live.schedules, chr(10) || chr(10), 1), NULL, NULL::bigint
FROM live, me
WHERE json_array_length(me.contested) > 0 AND live.instance <> me.instance AND left(live.schedules, 1) <> chr(10)
