-- ARGV: 1 nonce, 2 schedule, 3 planned | takeover | manual, 4 its instant, token or number, 5 the `until` that was observed
-- or nothing, 6 lease in us, 7 window in ms, 8 window in us, 9 most attempts, 10 holder, 11 1 where replicas are waited for,
-- 12 when it expires.
--
-- The numbers are those of the rules in protocol/claim.rs.

local record, refusal = registered()
if refusal then
    return refusal
end
local asked = tonumber(ARGV[4])

local function start_attempt()
    record.status = 'running'
    record.started = text(now)
    record['until'] = from_now(tonumber(ARGV[6]))
    record.token = text(math.max(tonumber(record.token) + 1, now_us))
    record.holder = ARGV[10]
    record.nonce = ARGV[1]
    record.cancel = ''
    put(record)
    return told('awarded', record)
end

-- Newest wins: an unfinished run that is no longer live is closed as lost.
local function first_attempt(occurrence)
    if record.status == 'running' or record.status == 'waiting' then
        close(record, 'lost')
    end
    record.occurrence = occurrence
    record.attempt, record.crashes, record.errors = '1', '0', '0'
    return start_attempt()
end

local function give_up(status)
    close(record, status)
    record.status = status
    put(record)
    return told('gave-up', record)
end

local function decide_only(word)
    record.decided = ARGV[4]
    put(record)
    return told(word, record)
end

local function planned()
    if asked > now then -- 3
        return told('early')
    elseif asked <= tonumber(record.decided) then -- 4
        return told('already-decided', record)
    elseif record.paused == '1' then -- 5
        return decide_only('paused')
    elseif asked < now - tonumber(ARGV[7]) then -- 6
        return told('missed')
    elseif is_live(record) then -- 7
        return decide_only('skipped')
    end
    record.decided = ARGV[4] -- 8
    return first_attempt('planned:' .. ARGV[4])
end

local function takeover()
    local was_running = record.status == 'running'
    if record.token ~= ARGV[4] or not (was_running or record.status == 'waiting') then -- 9
        return told('already-done', record)
    end
    local ends = tonumber(record['until'])
    local seen_over = was_running and record['until'] == ARGV[5]
    if ends > now and not seen_over then -- 10
        return told('held', record)
    elseif record.cancel == record.token then -- 11
        return give_up('cancelled')
    end
    local crashed_out = was_running and math.min(tonumber(record.crashes) + 1, MOST_U32) >= tonumber(ARGV[9])
    if crashed_out or (now - ends) * 1000 > tonumber(ARGV[8]) then -- 12
        return give_up('lost')
    end
    if was_running then -- 13
        close(record, 'lost')
        record.crashes = text(math.min(tonumber(record.crashes) + 1, MOST_U32))
    end
    record.attempt = text(math.min(tonumber(record.attempt) + 1, MOST_U32))
    return start_attempt()
end

local function manual()
    if asked <= tonumber(record.manual_done) or asked > tonumber(record.manual_asked) then -- 14
        return told('already-done', record)
    elseif is_live(record) then -- 15
        return told('held', record)
    end
    record.manual_done = record.manual_asked -- 16
    return first_attempt('manual:' .. record.manual_asked)
end

if record.nonce == ARGV[1] then -- 1
    if record.status ~= 'running' then
        return told('already-done', record)
    end
    if ARGV[11] == '1' then
        -- WAIT waits for what its own connection wrote, and this may be another one than the award's.
        put(record)
    end
    return told('awarded', record)
elseif now > tonumber(ARGV[12]) then -- 1b
    return told('expired')
elseif record.schedule ~= ARGV[2] then -- 2
    return told('stale', record)
elseif ARGV[3] == 'planned' then
    return planned()
elseif ARGV[3] == 'takeover' then
    return takeover()
else
    return manual()
end
