-- Reads new entries for a consumer over all streams of some queues, and marks each of them as alive.
-- Must not be split: an entry that is delivered and not yet alive could be reclaimed from under its worker. COUNT is
-- per stream, so only a script can keep to one limit over several streams.
-- KEYS  one set of priorities in use per queue
-- ARGV  1 namespace prefix · 2 shards · 3 consumer · 4 limit (at least 1) · 5 liveness in ms ·
--       6 '1' to sweep from low to high priority · 7 turn, for fairness among equals · queue names
-- returns rows of {stream, entry id, {field, value, ...}}
local prefix, shards, consumer, left = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local low_first, turn = ARGV[6] == '1', tonumber(ARGV[7])
local order = {}
for i = 1, #KEYS do
  local queue = ARGV[7 + (i + turn - 1) % #KEYS + 1]
  order[#order + 1] = {0, i, queue, prefix .. 'q:' .. queue}
  for _, priority in ipairs(redis.call('SMEMBERS', KEYS[(i + turn - 1) % #KEYS + 1])) do
    order[#order + 1] = {tonumber(priority), i, queue, prefix .. 'q:' .. queue .. '@' .. priority}
  end
end
table.sort(order, function(a, b)
  if a[1] == b[1] then
    return a[2] < b[2]
  end
  if low_first then
    return a[1] < b[1]
  end
  return a[1] > b[1]
end)
local taken = {}
for _, place in ipairs(order) do
  for n = 0, shards - 1 do
    if left <= 0 then
      return taken
    end
    local suffix = string.sub(place[4], #prefix + 3) .. ':' .. (n + turn) % shards
    local stream = prefix .. 'q:' .. suffix
    local read = redis.pcall('XREADGROUP', 'GROUP', 'workers', consumer, 'COUNT', left, 'STREAMS', stream, '>')
    if type(read) == 'table' and read.err and string.match(read.err, '^NOGROUP') then
      redis.call('XGROUP', 'CREATE', stream, 'workers', '0', 'MKSTREAM')
      read = redis.pcall('XREADGROUP', 'GROUP', 'workers', consumer, 'COUNT', left, 'STREAMS', stream, '>')
    end
    if type(read) == 'table' and not read.err and read[1] then
      for _, entry in ipairs(read[1][2]) do
        redis.call('SET', prefix .. 'alive:' .. suffix .. ':' .. entry[1], consumer, 'PX', ARGV[5])
        taken[#taken + 1] = {stream, entry[1], entry[2]}
        left = left - 1
      end
    end
  end
end
return taken
