-- Removes consumers that hold nothing and have been idle for long.
-- Must not be split: deleting a consumer throws its pending entries away, so none may come in between.
-- KEYS  streams   ARGV  1 idle time in ms   returns how many were removed
local removed = 0
for _, stream in ipairs(KEYS) do
  -- Asked of a stream that is gone, XINFO has an error of another kind.
  local consumers = redis.call('EXISTS', stream) == 1 and on_stream('XINFO', 'CONSUMERS', stream, 'workers')
  for _, flat in ipairs(consumers or {}) do
    local facts = {}
    for i = 1, #flat, 2 do
      facts[flat[i]] = flat[i + 1]
    end
    if facts.pending == 0 and facts.idle >= tonumber(ARGV[1]) then
      redis.call('XGROUP', 'DELCONSUMER', stream, 'workers', facts.name)
      removed = removed + 1
    end
  end
end
return removed
