-- ARGV: 1 token, 2 lease in us.

local record, refusal = load()
if refusal then
    return refusal
end
if not record or record.status ~= 'running' or record.token ~= ARGV[1] then
    return told('lost')
end
local ends = from_now(tonumber(ARGV[2]))
if ends == record['until'] then
    -- A watcher times an unchanged `until`; two renewals within one millisecond must differ too.
    ends = text(tonumber(ends) + 1)
end
record['until'] = ends
put(record)
return told('extended', record)
