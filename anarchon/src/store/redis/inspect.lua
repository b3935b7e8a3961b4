-- ARGV: 1 how many runs of the history. They follow the record, newest first.

local function decide()
    local record, refusal = load()
    if refusal then
        return refusal
    end
    if not record then
        return told('none')
    end
    local reply = told('record', record)
    local runs = tonumber(record.runs)
    local slots = {}
    for age = 1, math.min(tonumber(ARGV[1]), KEEP, runs) do
        slots[age] = text((runs - age) % KEEP)
    end
    if #slots > 0 then
        for _, run in ipairs(redis.call('HMGET', KEYS[2], unpack(slots))) do
            if run then
                reply[#reply + 1] = run
            end
        end
    end
    return reply
end
