-- Behind each script that works on jobs: all jobs of a call, in order, with as many arguments each. What the server refuses to one of
-- them is its own answer.
local answers = {}
local jobs = #ALL_KEYS / 2
local width = #ALL_ARGV / jobs
for job = 1, jobs do
    KEYS[1], KEYS[2] = ALL_KEYS[2 * job - 1], ALL_KEYS[2 * job]
    for i = 1, width do
        ARGV[i] = ALL_ARGV[(job - 1) * width + i]
    end
    local done, answer = pcall(decide)
    if not done and type(answer) ~= 'table' then
        -- Before version 7 an error is a text.
        answer = redis.error_reply(answer)
    end
    answers[job] = answer
end
return answers
