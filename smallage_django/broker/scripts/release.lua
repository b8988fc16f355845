-- Gives a lease back, if the caller holds it, and wakes those who wait for it.
-- Must not be split: the lease may run out and be taken by another between a look and a delete.
-- KEYS[1] lease, KEYS[2] list that standbys block on   ARGV[1] token   returns 1 if it was the caller's, else 0
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
redis.call('LPUSH', KEYS[2], '1', '1', '1')
redis.call('LTRIM', KEYS[2], 0, 7)
redis.call('EXPIRE', KEYS[2], 60)
return 1
