-- ARGV: 1 schedule, 2 by whom, 3 the schedule to replace or nothing, 4 since.

local record, refusal = load()
if refusal then
    return refusal
end
if not record then
    local at = text(now)
    record = {
        decided = at, occurrence = 'planned:' .. at, status = 'idle', attempt = '0', crashes = '0', errors = '0',
        started = at, ['until'] = at, token = '0', holder = ARGV[2], nonce = string.rep('0', 32), paused = '0',
        cancel = '', manual_asked = '0', manual_done = '0', schedule = ARGV[1], runs = '0',
    }
    -- What a job of this name left behind when its record alone was deleted.
    redis.call('DEL', KEYS[2])
    put(record)
    return told('created', record)
end
if record.schedule == ARGV[1] then
    return told('in-force', record)
end
if record.schedule ~= ARGV[3] then
    return told('stale', record)
end
record.schedule = ARGV[1]
record.decided = text(math.max(tonumber(record.decided), math.min(tonumber(ARGV[4]), now)))
put(record)
return told('in-force', record)
