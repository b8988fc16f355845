-- Reads a page of a stream: entry ids and the ids in them, without sending their bodies over the wire.
-- One call for a page: nothing is written, so nothing could be torn.
-- KEYS[1] stream   ARGV[1] where to begin, as XRANGE takes it, ARGV[2] limit
-- returns entry id, id, entry id, id, ... with '' for an entry that has none
local page = redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])
local names = {}
for _, entry in ipairs(page) do
  local name = ''
  for at = 1, #entry[2], 2 do
    if entry[2][at] == 'id' then
      name = entry[2][at + 1]
    end
  end
  names[#names + 1] = entry[1]
  names[#names + 1] = name
end
return names
