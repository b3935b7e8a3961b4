-- Each item: job, 1 trigger | pause | resume | cancel | forget, 2 the token of a cancel.

local WIDTH = 3

local function decide(job, at)
    local action = args[at + 1]
    if action == 'forget' then
        -- Not read first: what cannot be read can still be deleted.
        local fields = { job }
        for run = 1, KEEP do
            fields[run + 1] = place(job, run)
        end
        flush()
        redis.call('HDEL', records, unpack(fields))
        local was_there = kept[job]
        kept[job] = false
        return told(was_there and 'done' or 'unregistered')
    end
    local record = load(job)
    if not record then
        return told('unregistered')
    elseif action == 'trigger' then
        record.manual_asked = text(tonumber(record.manual_asked) + 1)
        put(job, record)
    elseif action == 'pause' then
        if record.paused ~= '1' then
            record.paused = '1'
            put(job, record)
        end
    elseif action == 'resume' then
        if record.paused == '1' then
            record.paused, record.decided = '0', text(math.max(tonumber(record.decided), now))
            put(job, record)
        end
    elseif record.token ~= args[at + 2] then
        return told('no-such-run')
    elseif record.status == 'running' then
        record.cancel = record.token
        put(job, record)
    elseif record.status == 'waiting' then
        close(job, record, 'cancelled')
        record.status = 'cancelled'
        put(job, record)
    else
        return told('no-such-run')
    end
    return told('done')
end
