-- Adds entries to their streams, each at most once per marker, under a fence.
-- Must not be split: a crash between an entry and its marker would add the entry a second time, and a leader that
-- was stopped in between would write under a fence that is no longer its own.
-- KEYS  1 fence · n markers · streams · wake lists · priority sets
-- ARGV  1 fence (0: unchecked) · 2 marker time to live in ms · 3 n · 4 number of streams · 5 number of wake lists ·
--       per wake list the number of tokens · per priority set the priority ·
--       per row: stream number, lost entry or '', number of fields and values, fields and values
-- returns per row the new entry id, or '<stream>|<entry id>' where the marker knew one, or '!<error>'
local fence = tonumber(ARGV[1])
if fence > 0 then
  local highest = tonumber(redis.call('GET', KEYS[1]) or '0')
  if fence < highest then
    return redis.error_reply('FENCED by ' .. highest)
  end
  if fence > highest then
    redis.call('SET', KEYS[1], ARGV[1])
  end
end
local ttl, rows, streams, wakes = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local at = 6 + wakes + (#KEYS - 1 - rows - streams - wakes)
local replies = {}
for row = 1, rows do
  local stream, lost, width = KEYS[1 + rows + tonumber(ARGV[at])], ARGV[at + 1], tonumber(ARGV[at + 2])
  local marker = KEYS[1 + row]
  local known = redis.call('GET', marker)
  if known and (lost == '' or string.match(known, '|(.*)$') ~= lost) then
    replies[row] = known
  else
    local entry = redis.pcall('XADD', stream, '*', unpack(ARGV, at + 3, at + 2 + width))
    if type(entry) == 'table' and entry.err then
      -- The server as a whole refuses writes for now: nothing is wrong with this row.
      if string.match(entry.err, '^OOM') or string.match(entry.err, '^MISCONF')
          or string.match(entry.err, '^READONLY') or string.match(entry.err, '^NOREPLICAS') then
        return redis.error_reply(entry.err)
      end
      replies[row] = '!' .. entry.err
    else
      redis.call('SET', marker, stream .. '|' .. entry, 'PX', ttl)
      replies[row] = entry
    end
  end
  at = at + 3 + width
end
for wake = 1, wakes do
  local key = KEYS[1 + rows + streams + wake]
  for _ = 1, tonumber(ARGV[5 + wake]) do
    redis.call('LPUSH', key, '1')
  end
  redis.call('LTRIM', key, 0, 63)
  redis.call('EXPIRE', key, 60)
end
for set = 1, #KEYS - 1 - rows - streams - wakes do
  redis.call('SADD', KEYS[1 + rows + streams + wakes + set], ARGV[5 + wakes + set])
end
return replies
