CASE i.action
    WHEN 'pause' THEN NOT j.paused
    WHEN 'resume' THEN j.paused
    WHEN 'cancel' THEN j.token = i.token AND j.status IN ('running', 'waiting')
    ELSE true
END
