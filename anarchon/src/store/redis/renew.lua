-- Each item: job, 1 token, 2 lease in us.

local WIDTH = 3

local function decide(job, at)
    local record = load(job)
    if not record or record.status ~= 'running' or record.token ~= args[at + 1] then
        return told('lost')
    end
    local ends = from_now(tonumber(args[at + 2]))
    if ends == record['until'] then
        -- A watcher times an unchanged `until`; two renewals within one millisecond must differ too.
        ends = text(tonumber(ends) + 1)
    end
    record['until'] = ends
    put(job, record)
    return told('extended', record)
end
