-- Copies an entry to the dead letters, then acknowledges and deletes it.
-- Must not be split: a crash in between would lose the entry, or bury it twice. Asked again, it does nothing.
-- KEYS  1 stream · 2 dead letters · 3 liveness key   ARGV  1 entry id · fields and values to keep
-- returns 1 if it was buried now, 0 if it is not pending (any more)
local pending = on_stream('XPENDING', KEYS[1], 'workers', ARGV[1], ARGV[1], 1)
if not pending or #pending == 0 then
  return 0
end
local time = redis.call('TIME')
local fields = {unpack(ARGV, 2)}
fields[#fields + 1] = 'dlq_at'
-- Concatenated and not summed: a Lua number would lose digits on its way to text.
fields[#fields + 1] = time[1] .. string.sub(string.format('%06d', tonumber(time[2])), 1, 3)
redis.call('XADD', KEYS[2], '*', unpack(fields))
redis.call('XACK', KEYS[1], 'workers', ARGV[1])
redis.call('XDEL', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[3])
return 1
