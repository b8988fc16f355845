-- Renews the liveness of entries that are still pending for a consumer.
-- Must not be split: between the look and the write an acknowledgement could come, and the key would live again.
-- KEYS  streams   ARGV  1 consumer · 2 liveness in ms · triples of stream number, entry id, liveness key
-- returns how many were renewed
local renewed = 0
for at = 3, #ARGV, 3 do
  local stream, id = KEYS[tonumber(ARGV[at])], ARGV[at + 1]
  local pending = on_stream('XPENDING', stream, 'workers', id, id, 1, ARGV[1])
  if pending and #pending == 1 then
    redis.call('SET', ARGV[at + 2], ARGV[1], 'PX', ARGV[2])
    renewed = renewed + 1
  end
end
return renewed
