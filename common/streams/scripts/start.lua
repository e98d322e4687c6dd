-- A scheduler takes a request that nobody has taken before, and dispatches it in the same moment: own.lua and take.lua
-- in one write, for a new request that finds a worker free.
--
-- Whatever else it finds, it changes nothing, and own.lua decides. So does a repetition after a lost answer: what this
-- did looks like a request of a lost scheduler then, and is recovered like one (docs/delivery.md).
--
-- The entry was just read by the owner and is pending to it: there is nothing to claim.
--
-- KEYS  record, queued
-- ARGV  owner, worker_id, fingerprint
-- Answer {'not new'} | {'started', now_ms, body}
redis.call('HDEL', KEYS[1], '')  -- takes no room: a full Redis lets a script go on that has written (docs/delivery.md)
local found = redis.call('HMGET', KEYS[1], 'status', 'epoch', 'cancel', 'class', 'tokens', 'body')
if found[1] ~= 'queued' or found[2] ~= '0' or found[3] then
  return {'not new'}
end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('HINCRBY', KEYS[2], 'requests:' .. found[4], -1)
redis.call('HINCRBY', KEYS[2], 'tokens:' .. found[4], -found[5])
redis.call('HSET', KEYS[1], 'epoch', 1, 'owner', ARGV[1], 'status', 'running', 'attempts', 1, 'first_dispatch_ms', now,
  'dispatch_ms', now, 'worker', ARGV[2], 'fingerprint', ARGV[3])
return {'started', now, found[6]}
