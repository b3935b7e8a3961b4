-- Each item: job, 1 token, 2 succeeded | failed | cancelled | retrying | released, 3 the delay of a retry in us, 4 `+` and the
-- message, or `-`.

local WIDTH = 5

local function decide(job, at)
    local record = load(job)
    if not record or record.token ~= args[at + 1] or record.status == 'lost' or record.status == 'idle' then
        return told('refused')
    end
    if record.status ~= 'running' then
        return told('closed', record)
    end
    local outcome = args[at + 2]
    close(job, record, outcome, args[at + 4])
    record.status = outcome
    if outcome == 'retrying' then
        record.errors = text(math.min(tonumber(record.errors) + 1, MOST_U32))
        record['until'] = from_now(tonumber(args[at + 3]))
        record.status = 'waiting'
    elseif outcome == 'released' then
        record['until'] = text(now)
        record.status = 'waiting'
    end
    put(job, record)
    return told('closed', record)
end
