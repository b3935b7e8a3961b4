-- Each item: job, 1 how many runs of the history. They follow the record, newest first.

local WIDTH = 2

local function decide(job, at)
    local record = load(job)
    if not record then
        return told('none')
    end
    local reply, runs = told('record', record), tonumber(record.runs)
    for age = 1, math.min(tonumber(args[at + 1]), KEEP, runs) do
        local run = redis.call('HGET', records, place(job, runs - age))
        if run then
            reply[#reply + 1] = run
        end
    end
    return reply
end
