-- ARGV: 1 trigger | pause | resume | cancel | forget, 2 the token of a cancel.

if ARGV[1] == 'forget' then
    -- Not read first: what cannot be read can still be deleted.
    if redis.call('DEL', KEYS[1]) == 0 then
        return told('unregistered')
    end
    redis.call('DEL', KEYS[2])
    return told('done')
end
local record, refusal = registered()
if refusal then
    return refusal
end
if ARGV[1] == 'trigger' then
    record.manual_asked = text(tonumber(record.manual_asked) + 1)
    put(record)
elseif ARGV[1] == 'pause' then
    if record.paused ~= '1' then
        record.paused = '1'
        put(record)
    end
elseif ARGV[1] == 'resume' then
    if record.paused == '1' then
        record.paused, record.decided = '0', text(math.max(tonumber(record.decided), now))
        put(record)
    end
elseif record.token ~= ARGV[2] then
    return told('no-such-run')
elseif record.status == 'running' then
    record.cancel = record.token
    put(record)
elseif record.status == 'waiting' then
    close(record, 'cancelled')
    record.status = 'cancelled'
    put(record)
else
    return told('no-such-run')
end
return told('done')
