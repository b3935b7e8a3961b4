-- Each item: job, 1 schedule, 2 by whom, 3 the schedule to replace or nothing, 4 since.

local WIDTH = 5

local function decide(job, at)
    local record, schedule = load(job), args[at + 1]
    if not record then
        local from = text(now)
        record = {
            decided = from, schedule = schedule, nonce = string.rep('0', 32), occurrence = 'planned:' .. from,
            status = 'idle', attempt = '0', crashes = '0', errors = '0', started = from, ['until'] = from, token = '0',
            holder = args[at + 2], paused = '0', cancel = '', manual_asked = '0', manual_done = '0', runs = '0',
        }
        put(job, record)
        return told('created', record)
    elseif record.schedule == schedule then
        return told('in-force', record)
    elseif record.schedule ~= args[at + 3] then
        return told('stale', record)
    end
    record.schedule = schedule
    record.decided = text(math.max(tonumber(record.decided), math.min(tonumber(args[at + 4]), now)))
    put(job, record)
    return told('in-force', record)
end
