-- Takes over entries whose owner went silent: idle for the grace, and without a liveness key. At the first call of a
-- consumer that came back under its old name, also what is pending for it from before.
-- Must not be split: of several reclaimers one must win, and the winner's entry must be alive at once.
-- KEYS  streams
-- ARGV  1 namespace prefix · 2 consumer · 3 limit (at least 1) · 4 liveness in ms · 5 grace in ms · 6 page size ·
--       7 '1' to take back what is the consumer's own · liveness keys of entries that it has in hand
-- returns rows of {stream, entry id, {field, value, ...}, deliveries}
local prefix, consumer, left, page = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[6])
local in_hand = {}
for i = 8, #ARGV do
  in_hand[ARGV[i]] = true
end
local found = {}

local function claim(stream, alive, item, idle)
  local id = item[1]
  local claimed = redis.call('XCLAIM', stream, 'workers', consumer, idle, id)
  if claimed[1] and claimed[1][2] then
    redis.call('SET', alive, consumer, 'PX', ARGV[4])
    found[#found + 1] = {stream, id, claimed[1][2], item[4] + 1}
    left = left - 1
  elseif #redis.call('XRANGE', stream, id, id) == 0 then
    -- Its body was deleted: there is nothing to run, and the row is reconciled from SQL.
    redis.call('XACK', stream, 'workers', id)
    redis.call('DEL', alive)
  end
end

-- Pages through what is pending, so that long live entries never hide an abandoned one.
local function sweep(stream, idle, own)
  local suffix = string.sub(stream, #prefix + 3)
  local from = '-'
  while left > 0 do
    local question = {'XPENDING', stream, 'workers', 'IDLE', idle, from, '+', page}
    if own then
      question[#question + 1] = consumer
    end
    local pending = on_stream(unpack(question))
    if not pending or #pending == 0 then
      return
    end
    for _, item in ipairs(pending) do
      local alive = prefix .. 'alive:' .. suffix .. ':' .. item[1]
      local free
      if own then
        free = not in_hand[alive]
      else
        free = redis.call('EXISTS', alive) == 0
      end
      if left > 0 and free then
        claim(stream, alive, item, idle)
      end
      from = '(' .. item[1]
    end
    if #pending < page then
      return
    end
  end
end

for _, stream in ipairs(KEYS) do
  if ARGV[7] == '1' then
    sweep(stream, 0, true)
  end
  sweep(stream, ARGV[5], false)
end
return found
