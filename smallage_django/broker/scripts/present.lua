-- Tells which entries are in their streams, without sending their bodies over the wire.
-- One call for a page: nothing is written, so nothing could be torn.
-- KEYS  streams   ARGV  pairs of stream number and entry id   returns per pair 1 or 0
local there = {}
for at = 1, #ARGV, 2 do
  local found = redis.pcall('XRANGE', KEYS[tonumber(ARGV[at])], ARGV[at + 1], ARGV[at + 1])
  there[#there + 1] = (type(found) == 'table' and not found.err and #found > 0) and 1 or 0
end
return there
