-- Cancel is state first, then a message that only wakes the leader. Repeating it is harmless.
--
-- KEYS  record, wake
-- ARGV  id, reason, wake_ttl_ms
-- Answer {'missing'} | {'ended', status} | {'cancelling', status}
redis.call('HDEL', KEYS[1], '')  -- takes no room: a full Redis lets a script go on that has written (docs/delivery.md)
local found = redis.call('HMGET', KEYS[1], 'status', 'term_epoch')
if not found[1] then
  return {'missing'}
end
if found[2] then
  return {'ended', found[1]}
end
redis.call('HSETNX', KEYS[1], 'cancel', ARGV[2])
local time = redis.call('TIME')
redis.call('XADD', KEYS[2], 'MINID', '~', string.format('%.0f', time[1] * 1000 - ARGV[3]), '*', 'id', ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {'cancelling', found[1]}
