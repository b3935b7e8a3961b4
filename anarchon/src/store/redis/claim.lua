-- Each item: job, 1 nonce, 2 schedule, 3 planned | takeover | manual, 4 its instant, token or number, 5 the `until` that was observed
-- or nothing, 6 lease in us, 7 window in ms, 8 window in us, 9 most attempts, 10 holder, 11 1 where replicas are waited for,
-- 12 when it expires.
--
-- The numbers are those of the rules in protocol/claim.rs.

local WIDTH = 13

local function start_attempt(job, at, record)
    record.status = 'running'
    record.started = text(now)
    record['until'] = from_now(tonumber(args[at + 6]))
    record.token = text(math.max(tonumber(record.token) + 1, now_us))
    record.holder = args[at + 10]
    record.nonce = args[at + 1]
    record.cancel = ''
    put(job, record)
    return told('awarded', record)
end

-- Newest wins: an unfinished run that is no longer live is closed as lost.
local function first_attempt(job, at, record, occurrence)
    if record.status == 'running' or record.status == 'waiting' then
        close(job, record, 'lost')
    end
    record.occurrence = occurrence
    record.attempt, record.crashes, record.errors = '1', '0', '0'
    return start_attempt(job, at, record)
end

local function give_up(job, record, status)
    close(job, record, status)
    record.status = status
    put(job, record)
    return told('gave-up', record)
end

local function decide_only(job, at, record, word)
    record.decided = args[at + 4]
    put(job, record)
    return told(word, record)
end

local function planned(job, at, record)
    local asked = tonumber(args[at + 4])
    if asked > now then -- 3
        return told('early')
    elseif asked <= tonumber(record.decided) then -- 4
        return told('already-decided', record)
    elseif record.paused == '1' then -- 5
        return decide_only(job, at, record, 'paused')
    elseif asked < now - tonumber(args[at + 7]) then -- 6
        return told('missed')
    elseif is_live(record) then -- 7
        return decide_only(job, at, record, 'skipped')
    end
    record.decided = args[at + 4] -- 8
    return first_attempt(job, at, record, 'planned:' .. args[at + 4])
end

local function takeover(job, at, record)
    local was_running = record.status == 'running'
    if record.token ~= args[at + 4] or not (was_running or record.status == 'waiting') then -- 9
        return told('already-done', record)
    end
    local ends = tonumber(record['until'])
    local seen_over = was_running and record['until'] == args[at + 5]
    if ends > now and not seen_over then -- 10
        return told('held', record)
    elseif record.cancel == record.token then -- 11
        return give_up(job, record, 'cancelled')
    end
    local crashed_out = was_running and math.min(tonumber(record.crashes) + 1, MOST_U32) >= tonumber(args[at + 9])
    if crashed_out or (now - ends) * 1000 > tonumber(args[at + 8]) then -- 12
        return give_up(job, record, 'lost')
    end
    if was_running then -- 13
        close(job, record, 'lost')
        record.crashes = text(math.min(tonumber(record.crashes) + 1, MOST_U32))
    end
    record.attempt = text(math.min(tonumber(record.attempt) + 1, MOST_U32))
    return start_attempt(job, at, record)
end

local function manual(job, at, record)
    local asked = tonumber(args[at + 4])
    if asked <= tonumber(record.manual_done) or asked > tonumber(record.manual_asked) then -- 14
        return told('already-done', record)
    elseif is_live(record) then -- 15
        return told('held', record)
    end
    record.manual_done = record.manual_asked -- 16
    return first_attempt(job, at, record, 'manual:' .. record.manual_asked)
end

-- Most claims come second and change nothing: whether this is one, by its first fields. Who is told looks at the others.
local function is_late(at, row)
    if args[at + 3] ~= 'planned' or string.sub(row, 1, 35) ~= '1 ' .. args[at + 2] .. ' ' or string.sub(row, 36, 67) == args[at + 1] then
        return false
    end
    local decided, asked = string.match(row, '^ (%-?%d+) ', 68), tonumber(args[at + 4])
    return decided and #decided < 16 and asked <= tonumber(decided) and asked <= now and now <= tonumber(args[at + 12])
end

local function decide(job, at)
    local row = kept[job]
    if not row then
        return told('unregistered')
    elseif is_late(at, row) then
        return { 'already-decided', row }
    end
    local record = parse(row)
    if record.nonce == args[at + 1] then -- 1
        if record.status ~= 'running' then
            return told('already-done', record)
        end
        if args[at + 11] == '1' then
            -- WAIT waits for what its own connection wrote, and this may be another one than the award's.
            put(job, record)
        end
        return told('awarded', record)
    elseif now > tonumber(args[at + 12]) then -- 1b
        return told('expired')
    elseif record.schedule ~= args[at + 2] then -- 2
        return told('stale', record)
    elseif args[at + 3] == 'planned' then
        return planned(job, at, record)
    elseif args[at + 3] == 'takeover' then
        return takeover(job, at, record)
    else
        return manual(job, at, record)
    end
end
