-- Goes last: decides on one item after the other. What befalls one is its own.

local jobs, replies = {}, { text(now_us) }
for at = 1, #args, WIDTH do
    jobs[#jobs + 1] = args[at]
end
local answer = redis.pcall('HMGET', records, unpack(jobs))
local refused = refusal(answer, records)
if refused then
    return refused
end
for i, job in ipairs(jobs) do
    kept[job] = answer[i]
end
for i, job in ipairs(jobs) do
    local went_well, reply = pcall(decide, job, 1 + (i - 1) * WIDTH)
    if not went_well and type(reply) ~= 'table' then
        return redis.error_reply(reply)
    end
    replies[i + 1] = reply
end
flush()
return replies
