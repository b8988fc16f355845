-- Takes over entries whose owner went silent: idle for the grace, and without a liveness key.
-- Must not be split: of several reclaimers one must win, and the winner's entry must be alive at once.
-- KEYS  one set of priorities in use per queue
-- ARGV  1 namespace prefix · 2 shards · 3 consumer · 4 limit (at least 1) · 5 liveness in ms · 6 grace in ms ·
--       7 page size · queue names
-- returns rows of {stream, entry id, {field, value, ...}, deliveries}
local prefix, shards, consumer, left = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local page = tonumber(ARGV[7])
local found = {}
local function sweep(suffix)
  local stream = prefix .. 'q:' .. suffix
  local from = '-'
  while left > 0 do
    local pending = redis.pcall('XPENDING', stream, 'workers', 'IDLE', ARGV[6], from, '+', page)
    if type(pending) ~= 'table' or pending.err or #pending == 0 then
      return
    end
    for _, item in ipairs(pending) do
      local id = item[1]
      from = '(' .. id
      local alive = prefix .. 'alive:' .. suffix .. ':' .. id
      if left > 0 and redis.call('EXISTS', alive) == 0 then
        local claimed = redis.call('XCLAIM', stream, 'workers', consumer, ARGV[6], id)
        if claimed[1] and claimed[1][2] then
          redis.call('SET', alive, consumer, 'PX', ARGV[5])
          found[#found + 1] = {stream, id, claimed[1][2], item[4] + 1}
          left = left - 1
        elseif #redis.call('XRANGE', stream, id, id) == 0 then
          -- Its body was deleted: nothing can be run, and the row is reconciled from SQL.
          redis.call('XACK', stream, 'workers', id)
        end
      end
    end
    if #pending < page then
      return
    end
  end
end
for i = 1, #KEYS do
  local places = {ARGV[7 + i]}
  for _, priority in ipairs(redis.call('SMEMBERS', KEYS[i])) do
    places[#places + 1] = ARGV[7 + i] .. '@' .. priority
  end
  for _, place in ipairs(places) do
    for shard = 0, shards - 1 do
      sweep(place .. ':' .. shard)
    end
  end
end
return found
