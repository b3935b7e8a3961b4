-- Goes before each script. All keys are hashes; a reply is the server's time in microseconds and, for each item, a list of texts that
-- begins with a word.

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]

-- Without an exponent, which tostring gives large numbers.
local function text(number)
    return string.format('%.0f', number)
end

-- What to answer where a command was refused. The server does not say under which key it found something else.
local function refusal(answer, key)
    if type(answer) == 'table' and answer.err then
        local is_foreign = string.find(answer.err, 'WRONGTYPE', 1, true)
        return is_foreign and redis.error_reply('WRONGTYPE of ' .. key) or answer
    end
end
