-- Takes a lease that nobody holds, or extends one that the caller holds.
-- Must not be split: between a look and a write another process could take the lease.
-- KEYS[1] lease   ARGV[1] token, ARGV[2] time to live in ms   returns 1 if the caller holds it now, else 0
local holder = redis.call('GET', KEYS[1])
if holder == false then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end
if holder == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end
return 0
