-- Removes consumers that hold nothing and have been idle for long.
-- Must not be split: deleting a consumer throws its pending entries away, so none may come in between.
-- KEYS  streams   ARGV  1 idle time in ms   returns how many were removed
local removed = 0
for _, stream in ipairs(KEYS) do
  local consumers = redis.pcall('XINFO', 'CONSUMERS', stream, 'workers')
  if type(consumers) == 'table' and not consumers.err then
    for _, flat in ipairs(consumers) do
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
end
return removed
