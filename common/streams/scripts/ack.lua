-- Ack and delete entries whose requests have ended, both at once. Repeating it is harmless.
--
-- A script, because a full Redis queues no command of a transaction, and these two make room.
--
-- KEYS  inbox
-- ARGV  group, entry...
-- Answer how many were deleted
redis.call('XACK', KEYS[1], unpack(ARGV))
return redis.call('XDEL', KEYS[1], unpack(ARGV, 2))
