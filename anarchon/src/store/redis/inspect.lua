-- Each item: job, 1 how many runs of the history. They follow the record, newest first.

local WIDTH = 2

local function decide(job, at)
    local record = load(job)
    if not record then
        return told('none')
    end
    local reply, places, runs = told('record', record), {}, tonumber(record.runs)
    for age = 1, math.min(tonumber(args[at + 1]), KEEP, runs) do
        places[age] = place(job, runs - age)
    end
    for _, run in ipairs(#places > 0 and redis.call('HMGET', records, unpack(places)) or {}) do
        reply[#reply + 1] = run or nil
    end
    return reply
end
