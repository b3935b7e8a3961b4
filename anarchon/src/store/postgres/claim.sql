, judged AS (
    SELECT
        i.*,
        j.record,
        j.ns,
        j.version,
        j.place,
        c.us,
        c.ms,
        CASE
            WHEN j.job IS NULL THEN 'unregistered'
            WHEN j.nonce = i.nonce THEN CASE j.status WHEN 'running' THEN 'repeated' ELSE 'done' END
            WHEN c.ms > i.expires THEN 'expired'
            WHEN j.schedule <> i.schedule THEN 'stale'
            WHEN i.kind = 'planned' THEN CASE
                WHEN i.at > c.ms THEN 'early'
                WHEN i.at <= j.decided THEN 'decided'
                WHEN j.paused THEN 'paused'
                WHEN i.at < c.ms - i.window_up THEN 'missed'
                WHEN j.status = 'running' AND j.until > c.ms THEN 'skipped'
                ELSE 'first'
            END
            WHEN i.kind = 'takeover' THEN CASE
                WHEN j.token <> i.token OR j.status NOT IN ('running', 'waiting') THEN 'done'
                WHEN j.until > c.ms AND (j.status = 'waiting' OR j.until IS DISTINCT FROM i.observed) THEN 'held'
                WHEN j.cancel = i.token THEN 'cancelled'
                WHEN j.status = 'running' AND j.crashes + 1 >= i.max_attempts THEN 'lost'
                WHEN j.until < c.ms - i.window_down THEN 'lost'
                ELSE 'next'
            END
            ELSE CASE
                WHEN i.seq <= j.manual_done OR i.seq > j.manual_asked THEN 'done'
                WHEN j.status = 'running' AND j.until > c.ms THEN 'held'
                ELSE 'manual'
            END
        END AS rule
    $found
), decided AS MATERIALIZED (
    SELECT
        *,
        rule IN ('first', 'next', 'manual') AS awards,
        rule IN ('first', 'next', 'manual', 'paused', 'skipped', 'cancelled', 'lost') AS writes,
        CASE
            -- Newest wins: an unfinished run that is no longer live is closed.
            WHEN rule IN ('first', 'manual') AND (record).status IN ('running', 'waiting') THEN 'lost'
            WHEN rule = 'next' AND (record).status = 'running' THEN 'lost'
            WHEN rule IN ('cancelled', 'lost') THEN rule
        END AS closes,
        NULL::text AS message
    FROM judged
    ORDER BY job COLLATE "C"
), written AS (
    UPDATE $schema.job j SET
        decided = CASE WHEN d.rule IN ('first', 'paused', 'skipped') THEN d.at ELSE j.decided END,
        kind = CASE d.rule WHEN 'first' THEN 'planned' WHEN 'manual' THEN 'manual' ELSE j.kind END,
        occurrence = CASE d.rule WHEN 'first' THEN d.at WHEN 'manual' THEN j.manual_asked ELSE j.occurrence END,
        status = CASE WHEN d.awards THEN 'running' WHEN d.rule IN ('cancelled', 'lost') THEN d.rule ELSE j.status END,
        attempt = CASE
            WHEN d.rule IN ('first', 'manual') THEN 1
            WHEN d.rule = 'next' THEN least(j.attempt, 4294967294) + 1
            ELSE j.attempt
        END,
        crashes = CASE
            WHEN d.rule IN ('first', 'manual') THEN 0
            WHEN d.rule = 'next' AND j.status = 'running' THEN least(j.crashes, 4294967294) + 1
            ELSE j.crashes
        END,
        errors = CASE WHEN d.rule IN ('first', 'manual') THEN 0 ELSE j.errors END,
        started = CASE WHEN d.awards THEN d.ms ELSE j.started END,
        until = CASE WHEN d.awards THEN (d.us + d.lease + 999) / 1000 ELSE j.until END,
        token = CASE WHEN d.awards THEN greatest(least(j.token, 9223372036854775806) + 1, d.us) ELSE j.token END,
        holder = CASE WHEN d.awards THEN d.holder ELSE j.holder END,
        nonce = CASE WHEN d.awards THEN d.nonce ELSE j.nonce END,
        cancel = CASE WHEN NOT d.awards THEN j.cancel END,
        manual_done = CASE d.rule WHEN 'manual' THEN j.manual_asked ELSE j.manual_done END,
        runs = CASE WHEN d.closes IS NULL THEN j.runs ELSE least(j.runs, 9223372036854775806) + 1 END
    FROM decided d
    $as_read
)
