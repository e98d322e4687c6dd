-- Somebody follows a request. Each follower has a name of its own, so that repeating it is harmless.
--
-- KEYS  record
-- ARGV  follower
-- Answer {'missing'} | flat list of the record's fields and values
local term_epoch = redis.call('HGET', KEYS[1], 'term_epoch')
if not term_epoch then
  if redis.call('EXISTS', KEYS[1]) == 0 then
    return {'missing'}
  end
  redis.call('HSET', KEYS[1], 'f:' .. ARGV[1], 1)
  redis.call('HDEL', KEYS[1], 'abandon_ms')
end
return redis.call('HGETALL', KEYS[1])
