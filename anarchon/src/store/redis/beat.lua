-- KEYS: 1 when each instance beat last and its zones, a hash; 2 the schedules of each, a hash.
-- ARGV: 1 the caller, 2 present | withdrawn, 3 its zones, 4 its schedules: lines for what it waits for, an empty one, and a line for
-- each; then what to search for in those of others, for each contested schedule.
--
-- Reply: one list, of `members`, 1 where the caller was known, how many instances there are, each with its zones, how many texts of
-- what others wait for there are, those, then the places of the contested schedules that another instance announces, counted from 1.

local AGE = 30000000
-- Far longer than an announcement counts, so that nothing depends on it.
local FORGOTTEN = 3600000000

for _, key in ipairs(KEYS) do
    local refused = refusal(redis.pcall('HGET', key, ARGV[1]), key)
    if refused then
        return refused
    end
end

local known, others = '0', {}
local kept = redis.call('HGETALL', KEYS[1])
for i = 1, #kept, 2 do
    local instance = kept[i]
    local at, zones = string.match(kept[i + 1], '^(%d+) (.*)$')
    -- A beat from the future is one from before the clock was set back: a live instance repeats it soon.
    local age = at and math.abs(now_us - tonumber(at))
    if not age or age > FORGOTTEN then
        redis.call('HDEL', KEYS[1], instance)
        redis.call('HDEL', KEYS[2], instance)
    elseif age <= AGE then
        if instance == ARGV[1] then
            known = '1'
        else
            others[#others + 1] = { instance, zones }
        end
    end
end

local reply = { 'members', known, '' }
local function add(instance, zones)
    reply[#reply + 1] = instance
    reply[#reply + 1] = zones
end
for _, other in ipairs(others) do
    add(other[1], other[2])
end
local count = #others
if ARGV[2] == 'present' then
    redis.call('HSET', KEYS[1], ARGV[1], text(now_us) .. ' ' .. ARGV[3])
    redis.call('HSET', KEYS[2], ARGV[1], ARGV[4])
    add(ARGV[1], ARGV[3])
    count = count + 1
else
    redis.call('HDEL', KEYS[1], ARGV[1])
    redis.call('HDEL', KEYS[2], ARGV[1])
end
reply[3] = tostring(count)

local texts = #reply + 1
reply[texts] = '0'
if #ARGV > 4 then
    local announced, told = {}, {}
    for i, other in ipairs(others) do
        announced[i] = redis.call('HGET', KEYS[2], other[1]) or ''
        local waiting = string.match(announced[i], '^(.-\n)\n')
        -- Those who wait for the same mostly say the same.
        if waiting and not told[waiting] then
            told[waiting] = true
            reply[#reply + 1] = waiting
        end
    end
    reply[texts] = tostring(#reply - texts)
    for i = 5, #ARGV do
        for _, schedules in ipairs(announced) do
            if string.find(schedules, ARGV[i], 1, true) then
                reply[#reply + 1] = tostring(i - 4)
                break
            end
        end
    end
end
return { text(now_us), reply }
