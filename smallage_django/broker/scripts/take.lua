-- Reads new entries for a consumer over all streams of some queues, and marks each of them as alive.
-- Must not be split: an entry that is delivered and not yet alive could be reclaimed from under its worker. COUNT is
-- per stream, so only a script can keep to one limit over several streams.
-- KEYS  1 set of all streams · one set of priorities in use per queue
-- ARGV  1 namespace prefix · 2 shards · 3 consumer · 4 limit (at least 1) · 5 liveness in ms ·
--       6 '1' to sweep from low to high priority · 7 turn, for fairness among equals · queue names
-- returns {rows of {stream, entry id, {field, value, ...}}, rows of {stream, error}}
local prefix, shards, consumer, left = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local low_first, turn = ARGV[6] == '1', tonumber(ARGV[7])
local queues = #KEYS - 1

-- Where each priority of each queue has its streams; equals are told apart by a place that moves with the turn.
local order = {}
for i = 1, queues do
  local number = (i + turn - 1) % queues + 1
  local queue = ARGV[7 + number]
  order[#order + 1] = {priority = 0, place = i, name = queue}
  local used = redis.pcall('SMEMBERS', KEYS[1 + number])
  for _, priority in ipairs(used) do
    if tonumber(priority) then
      order[#order + 1] = {priority = tonumber(priority), place = i, name = queue .. '@' .. priority}
    end
  end
end
table.sort(order, function(a, b)
  if a.priority == b.priority then
    return a.place < b.place
  elseif low_first then
    return a.priority < b.priority
  end
  return a.priority > b.priority
end)

local taken, failures = {}, {}
local function read(stream)
  return redis.pcall('XREADGROUP', 'GROUP', 'workers', consumer, 'COUNT', left, 'STREAMS', stream, '>')
end

local function take(suffix)
  local stream = prefix .. 'q:' .. suffix
  local answer = read(stream)
  local err = failure(answer)
  if err and string.find(err, '^NOGROUP') then
    -- From the beginning: what was added before anyone read, or came back after a loss, is work too.
    local made = redis.pcall('XGROUP', 'CREATE', stream, 'workers', '0', 'MKSTREAM')
    err = failure(made)
    if not err then
      answer = read(stream)
      err = failure(answer)
    end
  end
  if err then
    failures[#failures + 1] = {stream, err}
    return
  end
  if type(answer) ~= 'table' then
    return
  end
  for _, entry in ipairs(answer[1] and answer[1][2] or {}) do
    redis.call('SET', prefix .. 'alive:' .. suffix .. ':' .. entry[1], consumer, 'PX', ARGV[5])
    taken[#taken + 1] = {stream, entry[1], entry[2]}
    left = left - 1
  end
  redis.pcall('SADD', KEYS[1], stream)
end

for _, spot in ipairs(order) do
  for n = 0, shards - 1 do
    if left > 0 then
      take(spot.name .. ':' .. (n + turn) % shards)
    end
  end
end
for _, pair in ipairs(failures) do
  -- With entries in hand the answer must get home; without, a server that refuses is to be told from an idle one.
  if #taken == 0 and not string.find(pair[2], '^WRONGTYPE') then
    return redis.error_reply(pair[2])
  end
end
return {taken, failures}
