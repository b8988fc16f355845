-- Adds entries to their streams, each at most once per marker, under a fence.
-- Must not be split: a crash between an entry and its marker would add the entry a second time, and a leader that
-- was stopped in between would write under a fence that is no longer its own.
-- KEYS  1 fence · 2 set of all streams · n markers · streams · wake lists · sets of priorities
-- ARGV  1 fence (0: unchecked) · 2 marker time to live in ms · 3 n · 4 number of streams · 5 number of wake lists ·
--       per stream the number of its wake list · per set of priorities the priority to add ·
--       per row: stream number, lost entry or '', number of fields and values, fields and values
-- returns per row the new entry id, or '<stream>|<entry id>' where the marker knew one, or '!<error>'
local MOST_TOKENS = 16

-- Whether an error is of this one row. Any other is held against the row only if the server took another one.
local function of_row(err)
  return string.find(err, '^WRONGTYPE') or string.find(err, 'too large', 1, true)
    or string.find(err, 'last possible ID', 1, true)
end

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
local first_stream, first_wake = 2 + rows, 2 + rows + streams
local first_set = first_wake + wakes
local sets = #KEYS - first_set
local at = 6 + streams + sets
local replies, added = {}, {}
local accepted, refusal = false, nil
for row = 1, rows do
  local number, lost, width = tonumber(ARGV[at]), ARGV[at + 1], tonumber(ARGV[at + 2])
  local stream, marker = KEYS[first_stream + number], KEYS[2 + row]
  local known = redis.call('GET', marker)
  if known and (lost == '' or (known ~= lost and string.match(known, '|(.*)$') ~= lost)) then
    replies[row] = known
  else
    local entry = redis.pcall('XADD', stream, '*', unpack(ARGV, at + 3, at + 2 + width))
    local err = failure(entry)
    if err then
      replies[row] = '!' .. err
      if not of_row(err) then
        refusal = refusal or err
      end
    else
      redis.call('SET', marker, stream .. '|' .. entry, 'PX', ttl)
      replies[row] = entry
      accepted = true
      local wake = tonumber(ARGV[5 + number])
      added[wake] = (added[wake] or 0) + 1
    end
  end
  at = at + 3 + width
end
if refusal and not accepted then
  return redis.error_reply(refusal)
end
-- From here on a failure costs a little time and no entry: guarded, so that the receipts get home.
for wake, count in pairs(added) do
  local key, tokens = KEYS[first_wake + wake], {}
  for token = 1, math.min(count, MOST_TOKENS) do
    tokens[token] = '1'
  end
  redis.pcall('LPUSH', key, unpack(tokens))
  redis.pcall('LTRIM', key, 0, MOST_TOKENS - 1)
  redis.pcall('EXPIRE', key, 60)
end
for set = 1, sets do
  redis.pcall('SADD', KEYS[first_set + set], ARGV[5 + streams + set])
end
for stream = 1, streams do
  redis.pcall('SADD', KEYS[2], KEYS[first_stream + stream])
end
return replies
