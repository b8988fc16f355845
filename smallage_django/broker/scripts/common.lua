-- Stands before every other script: which errors of a command are a single key's, and which are the server's.

-- The error in an answer of redis.pcall, or nil. Redis 6.2 puts the place in the script before it.
local function failure(answer)
  if type(answer) ~= 'table' or not answer.err then
    return nil
  end
  return (string.gsub(answer.err, '^@user_script:%s*%d+:%s*%-?', ''))
end

-- Runs a command on a stream. Nil where there is no such group or the key is no stream; any other error (no right to
-- do it, a read-only replica) is no answer about the stream, and ends the script.
local function on_stream(...)
  local answer = redis.pcall(...)
  local err = failure(answer)
  if not err then
    return answer
  end
  if string.find(err, '^NOGROUP') or string.find(err, '^WRONGTYPE') then
    return nil
  end
  error(err, 0)
end

