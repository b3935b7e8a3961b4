j.nonce <> i.nonce AND j.schedule = i.schedule AND CASE i.kind
    WHEN 'planned' THEN i.at > j.decided AND i.at <= extract(epoch FROM clock_timestamp()) * 1000
    WHEN 'takeover' THEN j.token = i.token AND j.status IN ('running', 'waiting') AND (
        j.until <= extract(epoch FROM clock_timestamp()) * 1000 OR j.until = i.observed AND j.status = 'running')
    ELSE i.seq > j.manual_done AND i.seq <= j.manual_asked
        AND NOT (j.status = 'running' AND j.until > extract(epoch FROM clock_timestamp()) * 1000)
END
