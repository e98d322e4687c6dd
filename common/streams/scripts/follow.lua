-- Somebody follows a request. Each follower has a name of its own, so that repeating it is harmless.
--
-- The leader watches the gateways of all followers: the log's own, and those named here in ``gateways``.
--
-- KEYS  record
-- ARGV  follower, its gateway
-- Answer {'missing'} | flat list of the record's fields and values
redis.call('HDEL', KEYS[1], '')  -- takes no room: a full Redis lets a script go on that has written (docs/delivery.md)
local term_epoch = redis.call('HGET', KEYS[1], 'term_epoch')
if not term_epoch then
  if redis.call('EXISTS', KEYS[1]) == 0 then
    return {'missing'}
  end
  redis.call('HSET', KEYS[1], 'f:' .. ARGV[1], 1)
  redis.call('HDEL', KEYS[1], 'abandon_ms')
  local found = redis.call('HMGET', KEYS[1], 'log', 'gateways')
  if ARGV[2] ~= found[1] and not string.find(' ' .. (found[2] or '') .. ' ', ' ' .. ARGV[2] .. ' ', 1, true) then
    redis.call('HSET', KEYS[1], 'gateways', found[2] and (found[2] .. ' ' .. ARGV[2]) or ARGV[2])
  end
end
return redis.call('HGETALL', KEYS[1])
