-- ARGV: 1 how many runs of the history. They follow the record, newest first.

local record, refusal = load()
if refusal then
    return refusal
end
if not record then
    return told('none')
end
local reply = told('record', record)
local runs = tonumber(record.runs)
for age = 1, math.min(tonumber(ARGV[1]), KEEP, runs) do
    local run = redis.call('HGET', KEYS[2], text((runs - age) % KEEP))
    if run then
        reply[#reply + 1] = run
    end
end
return reply
