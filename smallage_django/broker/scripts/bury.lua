-- Copies an entry to the dead letters, then acknowledges and deletes it.
-- Must not be split: a crash in between would lose the entry, or bury it twice.
-- KEYS  1 stream · 2 dead letters · 3 liveness key   ARGV  1 entry id · fields and values to keep
-- returns the id of the dead letter
local letter = redis.call('XADD', KEYS[2], '*', unpack(ARGV, 2))
redis.call('XACK', KEYS[1], 'workers', ARGV[1])
redis.call('XDEL', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[3])
return letter
