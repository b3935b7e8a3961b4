-- Goes before each script that works on one job. KEYS: 1 its record, a hash; 2 its history, a hash of 20 slots.
--
-- Values are kept as the text they came as: Lua's numbers hold integers up to 2^53, and a nonce is longer. Every reply is
-- a list of texts that begins with the server's time in microseconds and a word.

local FIELDS = {
    'decided', 'occurrence', 'status', 'attempt', 'crashes', 'errors', 'started', 'until', 'token',
    'holder', 'nonce', 'paused', 'cancel', 'manual_asked', 'manual_done', 'schedule', 'runs',
}
local NUMBERS = {
    'decided', 'attempt', 'crashes', 'errors', 'started', 'until', 'token', 'manual_asked', 'manual_done', 'runs',
}
local KEEP = 20
local MOST_U32 = 4294967295

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Without an exponent, which tostring gives large numbers.
local function text(number)
    return string.format('%.0f', number)
end

-- The first whole millisecond at or after so many microseconds from now.
local function from_now(us)
    return text(math.ceil((now_us + us) / 1000))
end

local function told(word, record)
    local reply = { text(now_us), word }
    if record then
        for i, field in ipairs(FIELDS) do
            reply[i + 2] = record[field]
        end
    end
    return reply
end

local function damaged(why)
    return { text(now_us), 'damaged', why }
end

-- The record, nothing where there is none, or nothing and what to answer where it cannot be read.
local function load()
    local values = redis.pcall('HMGET', KEYS[1], 'form', unpack(FIELDS))
    if values.err then
        return nil, damaged('it is not a hash')
    end
    -- Records of form 1, the one that is read here, do not name it.
    local form = table.remove(values, 1)
    if form then
        return nil, damaged('was written by a newer anarchon: its form is ' .. form .. ', and this program reads 1')
    end
    local record, missing = {}, nil
    for i, field in ipairs(FIELDS) do
        record[field] = values[i]
        if not values[i] then
            missing = field
        end
    end
    if missing then
        if redis.call('EXISTS', KEYS[1]) == 0 then
            return nil
        end
        return nil, damaged('it has no field ' .. missing)
    end
    for _, field in ipairs(NUMBERS) do
        if not string.match(record[field], '^-?%d+$') then
            return nil, damaged('its field ' .. field .. ' is no number')
        end
        -- From here on one more is the same number. The limit itself is what its successor is read as.
        if math.abs(tonumber(record[field])) >= 9007199254740992 then
            return nil, damaged('its field ' .. field .. ' is beyond 2^53')
        end
    end
    return record
end

-- The same, with an answer also where there is none.
local function registered()
    local record, refusal = load()
    if not record and not refusal then
        refusal = told('unregistered')
    end
    return record, refusal
end

local function put(record)
    local flat = {}
    for i, field in ipairs(FIELDS) do
        flat[2 * i - 1] = field
        flat[2 * i] = record[field]
    end
    redis.call('HSET', KEYS[1], unpack(flat))
end

local function is_live(record)
    return record.status == 'running' and tonumber(record['until']) > now
end

-- One more in the history. The text behind `+` is the message; a mere `-` is none.
local function close(record, outcome, message)
    local runs = tonumber(record.runs)
    local run = {
        record.occurrence, record.attempt, record.token, record.holder, record.started, text(now), outcome, message or '-',
    }
    redis.call('HSET', KEYS[2], text(runs % KEEP), table.concat(run, ' '))
    record.runs = text(runs + 1)
end
