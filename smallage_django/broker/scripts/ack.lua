-- Acknowledges, deletes and forgets entries.
-- Must not be split: an acknowledged entry that stays in the stream would be counted as waiting for ever, a liveness
-- key that stays would outlive it.
-- KEYS  streams   ARGV  pairs of stream number and entry id, then liveness key   returns how many were pending
local done = 0
for at = 1, #ARGV, 3 do
  local stream, id = KEYS[tonumber(ARGV[at])], ARGV[at + 1]
  local acked = redis.pcall('XACK', stream, 'workers', id)
  if type(acked) == 'number' then
    done = done + acked
    redis.call('XDEL', stream, id)
  end
  redis.call('DEL', ARGV[at + 2])
end
return done
