-- Hands entries back: no liveness key, and idle for long enough to be reclaimed at once.
-- Must not be split: an entry that looks idle while its key lives would wait for the key to run out.
-- KEYS  streams   ARGV  1 consumer · 2 idle time in ms · triples of stream number, entry id, liveness key
-- returns how many were handed back
local back = 0
for at = 3, #ARGV, 3 do
  local stream, id = KEYS[tonumber(ARGV[at])], ARGV[at + 1]
  local pending = on_stream('XPENDING', stream, 'workers', id, id, 1, ARGV[1])
  if pending and #pending == 1 then
    redis.call('XCLAIM', stream, 'workers', ARGV[1], 0, id, 'IDLE', ARGV[2],
      'RETRYCOUNT', pending[1][4], 'JUSTID')
    -- Only then: where another has taken the entry over, the key tells of the other.
    redis.call('DEL', ARGV[at + 2])
    back = back + 1
  end
end
return back
