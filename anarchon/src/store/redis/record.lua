-- Goes before each script that works on jobs of one group. KEYS: 1 their records by their names, and 20 runs of each by the name, a slash
-- and a place. ARGV: WIDTH for each item, of which the first is its job.
--
-- A record is its form, which is 1, and its fields, joined by blanks: a server pays for each part of what is read, written and
-- answered. Values are kept as the text they came as: Lua's numbers hold integers up to 2^53, and a nonce is longer.

local KEEP = 20
local MOST_U32 = 4294967295
local LIMIT = 9007199254740992
local STATUSES = {
    idle = true, running = true, waiting = true, succeeded = true, failed = true, cancelled = true, lost = true,
}
-- All fields, as ours have them. What it lets through may still be too large.
local ROW = '^1 (%x+) (%x+) (%-?%d+) ([pm]%l+:%-?%d+) (%l+) (%d+) (%d+) (%d+) (%-?%d+) (%-?%d+) (%d+) ([%w_.%-]+) ([01]) (%d*) (%d+) (%d+) (%d+)$'

local args, records = ARGV, KEYS[1]
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- All records of a call are read at once, and written at once.
local kept, writes = {}, {}

-- The first whole millisecond at or after so many microseconds from now.
local function from_now(us)
    return text(math.ceil((now_us + us) / 1000))
end

local function told(word, record)
    return { word, record and record.text }
end

-- Ends the item, and no other.
local function refuse(word, why)
    error({ word, why })
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

-- What is wrong with a text that is no plain record, if anything is.
local function damage(row)
    local FIELDS = {
        'schedule', 'nonce', 'decided', 'occurrence', 'status', 'attempt', 'crashes', 'errors', 'started', 'until', 'token',
        'holder', 'paused', 'cancel', 'manual_asked', 'manual_done', 'runs',
    }
    local NUMBERS = {
        'decided', 'attempt', 'crashes', 'errors', 'started', 'until', 'token', 'manual_asked', 'manual_done', 'runs',
    }
    -- Those that are not negative; the first three have 32 bits.
    local COUNTS = { 'attempt', 'crashes', 'errors', 'token', 'manual_asked', 'manual_done', 'runs' }
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

    local form, row = string.match(row, '^(%d+) (.*)$')
    if form and #form < 10 and form ~= '1' then
        return 'was written by a newer anarchon: its form is ' .. form .. ', and this program reads 1'
    elseif form ~= '1' then
        return 'it does not begin with its form'
    end
    local record, count = {}, 0
    for value in string.gmatch(row .. ' ', '(.-) ') do
        count = count + 1
        record[FIELDS[count] or ''] = value
    end
    if count ~= #FIELDS then
        return 'it has ' .. count .. ' fields, and a record has ' .. #FIELDS
    end
    local field, why = unreadable(record)
    return field and 'its field ' .. field .. ' ' .. why
end

-- A record of its text.
local function parse(row)
    local schedule, nonce, decided, occurrence, status, attempt, crashes, errors, started, ends, token, holder, paused, cancel,
        manual_asked, manual_done, runs = string.match(row, ROW)
    if not schedule then
        refuse('damaged', damage(row) or 'it cannot be read')
    end
    local record = {
        schedule = schedule, nonce = nonce, decided = decided, occurrence = occurrence, status = status, attempt = attempt,
        crashes = crashes, errors = errors, started = started, ['until'] = ends, token = token, holder = holder,
        paused = paused, cancel = cancel, manual_asked = manual_asked, manual_done = manual_done, runs = runs,
        text = row,
    }
    if not is_plain(record) then
        local why = damage(row)
        if why then
            refuse('damaged', why)
        end
    end
    return record
end

-- The record of a job, or nothing where there is none.
local function load(job)
    return kept[job] and parse(kept[job])
end

local function write(field, value)
    writes[#writes + 1] = field
    writes[#writes + 1] = value
end

-- In one expression, which Lua joins in one step.
local function put(job, r)
    r.text = '1 ' .. r.schedule .. ' ' .. r.nonce .. ' ' .. r.decided .. ' ' .. r.occurrence .. ' ' .. r.status .. ' ' .. r.attempt
        .. ' ' .. r.crashes .. ' ' .. r.errors .. ' ' .. r.started .. ' ' .. r['until'] .. ' ' .. r.token .. ' ' .. r.holder
        .. ' ' .. r.paused .. ' ' .. r.cancel .. ' ' .. r.manual_asked .. ' ' .. r.manual_done .. ' ' .. r.runs
    kept[job] = r.text
    write(job, r.text)
end

local function flush()
    if #writes > 0 then
        redis.call('HSET', records, unpack(writes))
        writes = {}
    end
end

local function is_live(record)
    return record.status == 'running' and tonumber(record['until']) > now
end

-- Where a run stands in the history; the oldest gives way.
local function place(job, run)
    return job .. '/' .. run % KEEP
end

-- One more in the history. The text behind `+` is the message; a mere `-` is none.
local function close(job, record, outcome, message)
    local runs = tonumber(record.runs)
    write(place(job, runs), record.occurrence .. ' ' .. record.attempt .. ' ' .. record.token .. ' '
        .. record.holder .. ' ' .. record.started .. ' ' .. text(now) .. ' ' .. outcome .. ' ' .. (message or '-'))
    record.runs = text(runs + 1)
end
