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
-- Those that are not negative; the first three have 32 bits.
local COUNTS = { 'attempt', 'crashes', 'errors', 'token', 'manual_asked', 'manual_done', 'runs' }
local KEEP = 20
local MOST_U32 = 4294967295
local LIMIT = 9007199254740992
local STATUSES = ' idle running waiting succeeded failed cancelled lost '

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

-- The first field that holds what none of ours does, and why. Each call pays for this: plain comparisons, no tables.
local function unreadable(record)
    for _, field in ipairs(NUMBERS) do
        if not string.match(record[field], '^-?%d+$') then
            return field, 'is no number'
        end
        -- From here on one more is the same number. The limit itself is what its successor is read as.
        if math.abs(tonumber(record[field])) >= LIMIT then
            return field, 'is beyond 2^53'
        end
    end
    for _, field in ipairs(COUNTS) do
        if string.byte(record[field]) == 45 then
            return field, 'is negative'
        end
    end
    for i = 1, 3 do
        if tonumber(record[COUNTS[i]]) > MOST_U32 then
            return COUNTS[i], 'is beyond 2^32'
        end
    end
    local of = record.occurrence
    local number = string.match(of, '^planned:(%-?%d+)$') or string.match(of, '^manual:(%d+)$')
    if not number or math.abs(tonumber(number)) >= LIMIT then
        return 'occurrence', 'is none'
    elseif #record.status > 9 or not string.find(STATUSES, ' ' .. record.status .. ' ', 1, true) then
        return 'status', 'is none'
    elseif #record.holder > 100 or not string.find(record.holder, '^[%w_.%-]+$') then
        return 'holder', 'is no name'
    elseif #record.nonce ~= 32 or string.find(record.nonce, '%X') then
        return 'nonce', 'is none'
    elseif record.paused ~= '0' and record.paused ~= '1' then
        return 'paused', 'is neither 0 nor 1'
    elseif #record.cancel > 16 or string.find(record.cancel, '%D') then
        return 'cancel', 'is no token'
    elseif #record.schedule ~= 32 or string.find(record.schedule, '%X') then
        return 'schedule', 'is none'
    end
end

-- What a hash has in these fields, or nothing and what to answer where that cannot be told.
local function read(key, what, ...)
    local values = redis.pcall('HMGET', key, ...)
    if not values.err then
        return values
    elseif string.find(values.err, 'WRONGTYPE', 1, true) then
        return nil, damaged(what .. ' is not a hash')
    end
    return nil, values
end

-- The record, nothing where there is none, or nothing and what to answer where it cannot be read.
local function load()
    local values, refusal = read(KEYS[1], 'it', 'form', unpack(FIELDS))
    if not values then
        return nil, refusal
    end
    -- Records of form 1, the one that is read here, do not name it.
    local form = table.remove(values, 1)
    if form and string.find(form, '^%d+$') and #form < 10 and form ~= '1' then
        return nil, damaged('was written by a newer anarchon: its form is ' .. form .. ', and this program reads 1')
    elseif form and form ~= '1' then
        return nil, damaged('its field form is none')
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
    local field, why = unreadable(record)
    if field then
        return nil, damaged('its field ' .. field .. ' ' .. why)
    end
    -- Who closes a run writes it there.
    local _, history = read(KEYS[2], 'its history', '0')
    if history then
        return nil, history
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
