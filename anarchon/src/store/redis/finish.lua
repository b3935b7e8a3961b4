-- ARGV: 1 token, 2 succeeded | failed | cancelled | retrying | released, 3 the delay of a retry in us, 4 `+` and the
-- message, or `-`.

local record, refusal = load()
if refusal then
    return refusal
end
if not record or record.token ~= ARGV[1] or record.status == 'lost' or record.status == 'idle' then
    return told('refused')
end
if record.status ~= 'running' then
    return told('closed', record)
end
close(record, ARGV[2], ARGV[4])
record.status = ARGV[2]
if ARGV[2] == 'retrying' then
    record.errors = text(math.min(tonumber(record.errors) + 1, MOST_U32))
    record['until'] = from_now(tonumber(ARGV[3]))
    record.status = 'waiting'
elseif ARGV[2] == 'released' then
    record['until'] = text(now)
    record.status = 'waiting'
end
put(record)
return told('closed', record)
