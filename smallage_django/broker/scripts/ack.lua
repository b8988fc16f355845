-- Acknowledges, deletes and forgets entries.
-- Must not be split: an acknowledged entry that stays in the stream would be counted as waiting for ever, a liveness
-- key that stays would outlive it.
-- KEYS  streams   ARGV  triples of stream number, entry id, liveness key   returns how many entries were deleted
local deleted = 0
for at = 1, #ARGV, 3 do
  local stream, id = KEYS[tonumber(ARGV[at])], ARGV[at + 1]
  -- The group may be gone with all its data, or never have been made; the entry is deleted all the same.
  on_stream('XACK', stream, 'workers', id)
  deleted = deleted + (on_stream('XDEL', stream, id) or 0)
  redis.call('DEL', ARGV[at + 2])
end
return deleted
