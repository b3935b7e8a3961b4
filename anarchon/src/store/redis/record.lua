-- Goes before each script that works on one job. KEYS: 1 its record, a text; 2 its history, a hash of 20 slots.
--
-- A record is its form, which is 1, and its fields, joined by blanks: a server pays for each part of what is read, written and
-- answered. Values are kept as the text they came as: Lua's numbers hold integers up to 2^53, and a nonce is longer. Every reply is a
-- list of texts that begins with the server's time in microseconds and a word; a record is one of them, without its form.

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
local STATUSES = {
    idle = true, running = true, waiting = true, succeeded = true, failed = true, cancelled = true, lost = true,
}
-- All fields, as ours have them. What it lets through may still be too large.
local ROW = '^(%-?%d+) ([pm]%l+:%-?%d+) (%l+) (%d+) (%d+) (%d+) (%-?%d+) (%-?%d+) (%d+) ([%w_.%-]+) (%x+) ([01]) (%d*) (%d+) (%d+) (%x+) (%d+)$'

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local now_text = string.format('%.0f', now_us)

-- Without an exponent, which tostring gives large numbers.
local function text(number)
    return string.format('%.0f', number)
end

-- The first whole millisecond at or after so many microseconds from now.
local function from_now(us)
    return text(math.ceil((now_us + us) / 1000))
end

-- In one expression, which Lua joins in one step.
local function row(r)
    return r.decided .. ' ' .. r.occurrence .. ' ' .. r.status .. ' ' .. r.attempt .. ' ' .. r.crashes .. ' ' .. r.errors
        .. ' ' .. r.started .. ' ' .. r['until'] .. ' ' .. r.token .. ' ' .. r.holder .. ' ' .. r.nonce .. ' ' .. r.paused
        .. ' ' .. r.cancel .. ' ' .. r.manual_asked .. ' ' .. r.manual_done .. ' ' .. r.schedule .. ' ' .. r.runs
end

local function told(word, record)
    return { now_text, word, record and record.row }
end

local function damaged(why)
    return { now_text, 'damaged', why }
end

-- Whether each field holds what ours do, for all but a few: the others are looked at one by one. Each call pays for this.
local function is_plain(record)
    return STATUSES[record.status]
        and (string.find(record.occurrence, 'planned:', 1, true) == 1 or string.find(record.occurrence, '^manual:%d'))
        and #record.attempt < 10 and #record.crashes < 10 and #record.errors < 10
        and #record.decided < 16 and #record.started < 16 and #record['until'] < 16
        and #record.manual_asked < 16 and #record.manual_done < 16 and #record.runs < 16
        and tonumber(record.token) < LIMIT and #record.occurrence < 23 and #record.cancel < 17
        and #record.holder <= 100 and #record.nonce == 32 and #record.schedule == 32
end

-- The first field that holds what none of ours does, and why.
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
    elseif not STATUSES[record.status] then
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

-- What a command reads, or nothing and what to answer where the key holds something else.
local function read(what, ...)
    local value = redis.pcall(...)
    if type(value) ~= 'table' or not value.err then
        return value
    elseif string.find(value.err, 'WRONGTYPE', 1, true) then
        return nil, damaged(what)
    end
    return nil, value
end

-- The fields of a text that ROW does not match: the first that is wrong.
local function wrong(text)
    local record, count = {}, 0
    for value in string.gmatch(text .. ' ', '(.-) ') do
        count = count + 1
        record[FIELDS[count] or ''] = value
    end
    if count ~= #FIELDS then
        return 'it has ' .. count .. ' fields, and a record has ' .. #FIELDS
    end
    local field, why = unreadable(record)
    return field and 'its field ' .. field .. ' ' .. why
end

-- The record, nothing where there is none, or nothing and what to answer where it cannot be read.
local function load()
    local kept, refusal = read('it is not a text', 'GET', KEYS[1])
    if not kept then
        return nil, refusal
    end
    local form, row = string.match(kept, '^(%d+) (.*)$')
    if form and #form < 10 and form ~= '1' then
        return nil, damaged('was written by a newer anarchon: its form is ' .. form .. ', and this program reads 1')
    elseif form ~= '1' then
        return nil, damaged('it does not begin with its form')
    end
    local decided, occurrence, status, attempt, crashes, errors, started, ends, token, holder, nonce, paused, cancel,
        manual_asked, manual_done, schedule, runs = string.match(row, ROW)
    if not decided then
        return nil, damaged(wrong(row) or 'it cannot be read')
    end
    local record = {
        decided = decided, occurrence = occurrence, status = status, attempt = attempt, crashes = crashes, errors = errors,
        started = started, ['until'] = ends, token = token, holder = holder, nonce = nonce, paused = paused,
        cancel = cancel, manual_asked = manual_asked, manual_done = manual_done, schedule = schedule, runs = runs,
        row = row,
    }
    if not is_plain(record) then
        local why = wrong(row)
        if why then
            return nil, damaged(why)
        end
    end
    -- Who closes a run writes it there.
    local _, history = read('its history is not a hash', 'HGET', KEYS[2], '0')
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
    record.row = row(record)
    redis.call('SET', KEYS[1], '1 ' .. record.row)
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
